#include "checkpoint/requantise.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "base/numeric.h"
#include "base/threads.h"
#include "checkpoint/progress.h"

namespace perigee {
namespace {

constexpr std::int64_t kGroupColumns = 32;
constexpr std::int64_t kMatrixAlignment = 64;
constexpr std::int64_t kTaskRows = 64;  // of one task
constexpr std::uintptr_t kMemoryPage = 4096;
constexpr float kSmallest = 0x1p-100F;

struct Int8Target {
  const TensorSpec* spec;
  Matrix matrix;  // what is made; points into the region once there is one
  std::int64_t data_offset;
  std::int64_t scale_offset;
};

struct TaskRows {
  const Int8Target* target;
  std::int64_t begin;
};

// Largest magnitude as bits: NaN and infinity are the largest of all.
std::uint32_t largest_magnitude(const float* values) {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < kGroupColumns; ++i) {
    largest = std::max(largest, std::bit_cast<std::int32_t>(values[i]) & 0x7FFFFFFF);
  }
  return static_cast<std::uint32_t>(largest);
}

// One row. False where a weight is not finite.
bool requantise_row(const Matrix& stored, const Matrix& made, std::int64_t row) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(stored.data + row * stored.row_bytes);
  auto* codes = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(made.data) + row * made.row_bytes);
  std::byte* scales = const_cast<std::byte*>(made.scales) + row * made.scale_row_bytes;
  bool finite = true;
  for (std::int64_t column = 0; column < stored.cols; column += kGroupColumns) {
    const std::int64_t count = std::min(kGroupColumns, stored.cols - column);
    // Whole groups, so that the loops have a fixed length; zeros behind the last column.
    std::uint16_t words[kGroupColumns] = {};
    std::memcpy(words, from + column, static_cast<std::size_t>(count) * sizeof(words[0]));
    float values[kGroupColumns];
    for (std::int64_t i = 0; i < kGroupColumns; ++i) values[i] = to_float(bf16{words[i]});
    const std::uint32_t bits = largest_magnitude(values);
    finite = finite && bits < 0x7F800000U;
    const auto largest = std::bit_cast<float>(bits);
    const bool zero = !(largest >= kSmallest);
    const bf16 scale = zero ? bf16{} : to_bf16(largest / 127);
    const float inverse = zero ? 0 : 1 / to_float(scale);
    std::memcpy(scales + column / kGroupColumns * 2, &scale, 2);
    std::uint8_t group[kGroupColumns];
    for (std::int64_t i = 0; i < kGroupColumns; ++i) {
      // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits.
      const float scaled = values[i] * inverse;
      const float low = scaled > 127.0F ? 127.0F : scaled;
      const float shifted = (low < -127.0F ? -127.0F : low) + 12582912.0F;
      group[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(shifted) + 128U);
    }
    std::memcpy(codes + column, group, static_cast<std::size_t>(count));
  }
  return finite;
}

// Pages of a mapped file that lie within the matrix: the file keeps them, this process need not.
void give_back(const Matrix& stored) {
  const auto begin = reinterpret_cast<std::uintptr_t>(stored.data);
  const std::uintptr_t end = begin + static_cast<std::uintptr_t>(stored.rows * stored.row_bytes);
  const std::uintptr_t first = (begin + kMemoryPage - 1) / kMemoryPage * kMemoryPage;
  const std::uintptr_t last = end / kMemoryPage * kMemoryPage;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace

Result<Requantised> requantise_int8(const std::vector<TensorSpec>& specs, const RequantiseOptions& options) {
  std::vector<Int8Target> targets;
  Requantised result;
  std::int64_t bytes = 0;
  for (const TensorSpec& spec : specs) {
    if (spec.use != TensorUse::kMatrix || spec.keep_bf16 || spec.matrix == nullptr) continue;
    const Matrix& stored = *spec.matrix;
    if (stored.format != WeightFormat::kBf16) continue;
    Int8Target target{&spec, stored, bytes, 0};
    Matrix& made = target.matrix;
    made.format = WeightFormat::kInt8Group;
    made.scale_format = ScaleFormat::kBf16;
    made.row_bytes = align_up(made.cols, 4);
    made.scale_row_bytes = ceil_div(made.cols, kGroupColumns) * 2;
    made.group = kGroupColumns;
    target.scale_offset = bytes + align_up(made.rows * made.row_bytes, kMatrixAlignment);
    bytes = target.scale_offset + align_up(made.rows * made.scale_row_bytes, kMatrixAlignment);
    result.replaced_bytes += stored.rows * stored.row_bytes;
    targets.push_back(target);
  }
  PERIGEE_ASSIGN_OR_RETURN(result.region, MemoryRegion::allocate(static_cast<std::size_t>(bytes)));

  std::vector<TaskRows> tasks;
  for (Int8Target& target : targets) {
    target.matrix.data = result.region.bytes().data() + target.data_offset;
    target.matrix.scales = result.region.bytes().data() + target.scale_offset;
    for (std::int64_t row = 0; row < target.matrix.rows; row += kTaskRows) tasks.push_back({&target, row});
  }
  Progress progress("making int8 weights", result.replaced_bytes, options.show_progress);
  std::atomic<std::int64_t> bad{std::ssize(tasks)};  // lowest task, so that the message does not depend on timing
  ThreadPool pool;
  pool.run(std::ssize(tasks), [&](std::int64_t index, int /*thread*/) {
    const TaskRows& rows = tasks[static_cast<std::size_t>(index)];
    const Matrix& stored = *rows.target->spec->matrix;
    const std::int64_t end = std::min(rows.begin + kTaskRows, stored.rows);
    bool finite = true;
    for (std::int64_t row = rows.begin; row < end; ++row) {
      finite = requantise_row(stored, rows.target->matrix, row) && finite;
    }
    progress.add((end - rows.begin) * stored.row_bytes);
    if (!finite) keep_lowest(bad, index);
  });
  if (bad.load() < std::ssize(tasks)) {
    const TaskRows& rows = tasks[static_cast<std::size_t>(bad.load())];
    return data_loss("tensor {}: expected finite weights, found NaN or infinity in rows {} to {}",
                     rows.target->spec->name, rows.begin,
                     std::min(rows.begin + kTaskRows, rows.target->matrix.rows) - 1);
  }
  for (const Int8Target& target : targets) {
    if (options.stored_in_mappings) give_back(*target.spec->matrix);
    *target.spec->matrix = target.matrix;
  }
  return result;
}

}  // namespace perigee
