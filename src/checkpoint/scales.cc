#include "checkpoint/scales.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "base/numeric.h"
#include "base/threads.h"

namespace perigee {
namespace {

constexpr std::int64_t kSampledMatrices = 4096;
constexpr std::int64_t kSampledBytes = 4096;

std::int64_t scale_bytes(const Matrix& matrix) {
  const std::int64_t rows =
      matrix.format == WeightFormat::kFp8Block ? ceil_div<std::int64_t>(matrix.rows, 128) : matrix.rows;
  return matrix.scales == nullptr ? 0 : rows * matrix.scale_row_bytes;
}

template <typename Bits, typename Widen>
std::int64_t first_bad(const std::byte* data, std::int64_t bytes, Widen widen) {
  for (std::int64_t i = 0; i < bytes / static_cast<std::int64_t>(sizeof(Bits)); ++i) {
    Bits bits{};
    std::memcpy(&bits, data + i * static_cast<std::int64_t>(sizeof(Bits)), sizeof(Bits));
    if (!std::isfinite(widen(bits))) return i;
  }
  return -1;
}

// Index of the first scale that is NaN or infinite, or -1.
std::int64_t first_bad(const Matrix& matrix, std::int64_t bytes) {
  switch (matrix.scale_format) {
    case ScaleFormat::kE8m0: {
      const void* at = std::memchr(matrix.scales, 0xFF, static_cast<std::size_t>(bytes));
      return at == nullptr ? -1 : static_cast<const std::byte*>(at) - matrix.scales;
    }
    case ScaleFormat::kBf16:
      return first_bad<std::uint16_t>(matrix.scales, bytes, [](std::uint16_t bits) { return to_float(bf16{bits}); });
    case ScaleFormat::kF16:
      return first_bad<std::uint16_t>(matrix.scales, bytes, [](std::uint16_t bits) { return half_to_float(bits); });
    case ScaleFormat::kF32:
      return first_bad<float>(matrix.scales, bytes, [](float value) { return value; });
    case ScaleFormat::kNone:
      break;
  }
  return -1;
}

}  // namespace

Result<ScaleCheck> check_scales(const std::vector<TensorSpec>& specs, std::int64_t complete_bytes) {
  ScaleCheck check;
  std::vector<const TensorSpec*> scaled;
  for (const TensorSpec& spec : specs) {
    if (spec.matrix == nullptr || spec.matrix->scales == nullptr) continue;
    scaled.push_back(&spec);
    check.bytes += scale_bytes(*spec.matrix);
  }
  if (scaled.empty()) return check;
  const bool complete = check.bytes <= complete_bytes;
  const auto count = static_cast<std::int64_t>(scaled.size());
  const std::int64_t step = complete ? 1 : ceil_div(count, kSampledMatrices);
  const std::int64_t tasks = ceil_div(count, step);

  std::atomic<std::int64_t> checked{0};
  std::atomic<std::int64_t> bad{count};  // lowest index, so that the message does not depend on timing
  ThreadPool pool;
  pool.run(tasks, [&](std::int64_t task, int /*thread*/) {
    const std::int64_t index = task * step;
    const Matrix& matrix = *scaled[static_cast<std::size_t>(index)]->matrix;
    const std::int64_t bytes = complete ? scale_bytes(matrix) : std::min(scale_bytes(matrix), kSampledBytes);
    checked.fetch_add(bytes, std::memory_order_relaxed);
    if (first_bad(matrix, bytes) >= 0) keep_lowest(bad, index);
  });
  check.checked = checked.load();
  if (bad.load() < count) {
    const TensorSpec& spec = *scaled[static_cast<std::size_t>(bad.load())];
    return data_loss("tensor {}: expected finite scales, found {} at element {}",
                     replace_weight(spec.name, ".weight_scale"),
                     spec.matrix->scale_format == ScaleFormat::kE8m0 ? "255 (NaN)" : "NaN or infinity",
                     first_bad(*spec.matrix, scale_bytes(*spec.matrix)));
  }
  return check;
}

}  // namespace perigee
