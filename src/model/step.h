// What one forward step works on: flat token rows, grouped into segments (runs of one sequence), and the buffers and
// tools that every layer shares. Layers know nothing of requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/threads.h"
#include "checkpoint/model_config.h"
#include "kernels/kernels.h"
#include "model/state_layout.h"

namespace perigee {

// The live state of one sequence, owned by the caller. `pages` covers all positions up to position + tokens; pages from
// the first new position on are written and must not be shared.
struct SequenceView {
  std::int64_t position = 0;  // tokens already in the state
  float* recurrent = nullptr;
  std::span<std::byte* const> pages;
};

// Rows a task in loops of small work.
inline constexpr std::int64_t kRowGrain = 8;

enum class WantLogits : std::uint8_t { kNone, kLast, kAll };

struct Segment {
  SequenceView sequence;
  std::span<const std::int32_t> tokens;  // ids in [0, vocab), at least one
  WantLogits logits = WantLogits::kLast;
};

// For golden tests and `verify`: sees intermediate values. Pointers are valid during the call only.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  virtual void on_attention(std::int64_t /*layer*/, const float* /*out, [T, hidden]*/) {}
  virtual void on_layer(std::int64_t /*layer*/, const float* /*prefix, [T, hidden]*/) {}
  virtual void on_selection(std::int64_t /*layer*/, std::int64_t /*row*/, std::span<const float> /*scores of all keys*/,
                            std::span<const std::int32_t> /*selected*/) {}
  virtual void on_routing(std::int64_t /*layer*/, std::int64_t /*row*/, std::span<const float> /*biased scores*/,
                          std::span<const std::int32_t> /*ids, descending score*/, std::span<const float> /*weights*/) {
  }
  virtual void on_routed_sum(std::int64_t /*layer*/, const float* /*sum before the norm, [T, latent or hidden]*/) {}
};

struct StepContext {
  const ModelConfig& config;
  const Kernels& kernels;
  ThreadPool& pool;
  const StateLayout& layout;
  Rounding rounding;
  NormRounding norm_rounding;  // of the RMSNorm modules (spec 1.5)
  ForwardObserver* observer = nullptr;

  std::span<const Segment> segments;
  std::int64_t rows = 0;                   // tokens of all segments
  std::vector<std::int64_t> segment_row;   // first row of each segment
  std::vector<std::int32_t> row_segment;   // [rows]
  std::vector<std::int64_t> row_position;  // [rows] absolute position in its sequence

  void set_segments(std::span<const Segment> batch);
  // The product for the activations of this step's path.
  auto gemm() const { return rounding == Rounding::kBf16 ? kernels.gemm_bf16 : kernels.gemm; }
  const SequenceView& sequence_of(std::int64_t row) const {
    return segments[static_cast<std::size_t>(row_segment[static_cast<std::size_t>(row)])].sequence;
  }
};

// Consecutive rows of one segment, at most `tile` of them: queries that share their keys.
struct RowTile {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};
void row_tiles(const StepContext& step, std::int64_t tile, std::vector<RowTile>& tiles);

// A part of the keys of one row, where few rows share many threads.
struct RowPiece {
  std::int64_t row = 0;
  std::int64_t piece = 0;
};

// Splits [0, count) into pieces of `grain` and runs body(begin, end, thread) on the pool.
template <typename Body>
void parallel_ranges(ThreadPool& pool, std::int64_t count, std::int64_t grain, const Body& body) {
  const std::int64_t pieces = (count + grain - 1) / grain;
  pool.run(pieces, [&](std::int64_t piece, int thread) {
    const std::int64_t begin = piece * grain;
    body(begin, begin + grain < count ? begin + grain : count, thread);
  });
}

// The same for work on single elements: pieces of at least some microseconds, whatever the rows are, and few of them.
template <typename Body>
void parallel_elements(ThreadPool& pool, std::int64_t count, const Body& body) {
  constexpr std::int64_t kLeast = 4096;
  const std::int64_t grain = count / (8 * pool.size()) / kLeast * kLeast;
  parallel_ranges(pool, count, grain > kLeast ? grain : kLeast,
                  [&](std::int64_t begin, std::int64_t end, int /*thread*/) { body(begin, end); });
}

}  // namespace perigee
