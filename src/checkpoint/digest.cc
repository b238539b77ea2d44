#include "checkpoint/digest.h"

#include <algorithm>

#include "base/sha256.h"
#include "base/threads.h"

namespace perigee {
namespace {

constexpr std::size_t kReadAllBytes = std::size_t{256} << 20;
constexpr std::size_t kSampleBytes = 1024;

// A short tensor whole, of a longer one the middle: one page of disk for each of half a million tensors.
std::span<const std::byte> sample(const TensorView& tensor) {
  if (tensor.data.size() <= 4 * kSampleBytes) return tensor.data;
  return tensor.data.subspan(tensor.data.size() / 2, kSampleBytes);
}

}  // namespace

std::string checkpoint_digest(std::string_view config_text, const TensorTable& tensors) {
  std::size_t total = 0;
  for (const TensorView& tensor : tensors) total += tensor.data.size();
  const bool read_all = total <= kReadAllBytes;

  std::vector<Sha256Digest> digests(tensors.size());
  constexpr std::size_t kTensorsPerTask = 16;
  ThreadPool pool;
  const auto tasks = static_cast<std::int64_t>((tensors.size() + kTensorsPerTask - 1) / kTensorsPerTask);
  pool.run(tasks, [&](std::int64_t task, int /*thread*/) {
    const std::size_t begin = static_cast<std::size_t>(task) * kTensorsPerTask;
    for (std::size_t i = begin; i < std::min(begin + kTensorsPerTask, tensors.size()); ++i) {
      digests[i] = sha256(read_all ? tensors[i].data : sample(tensors[i]));
    }
  });

  Sha256 hash;
  hash.update(fmt::format("perigee-model-1\n{}\n", config_text.size()));
  hash.update(config_text);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i];
    hash.update(fmt::format("{} {} {}\n", tensor.name, dtype_name(tensor.dtype), tensor.shape.to_string()));
    hash.update(digests[i]);
  }
  return to_hex(hash.finish());
}

}  // namespace perigee
