#include "model/linear.h"

#include <algorithm>

#include "base/checked.h"

namespace perigee {
namespace {

// Enough pieces a thread to even out a core that is busy with something else, and rows in multiples of the widest
// register tile of any path.
constexpr std::int64_t kPiecesPerThread = 4;
constexpr std::int64_t kRowMultiple = 16;

std::int64_t rows_per_piece(const Matrix& weight, int threads) {
  const std::int64_t even = ceil_div(weight.rows, threads * kPiecesPerThread);
  return ceil_div(std::max<std::int64_t>(even, 1), kRowMultiple) * kRowMultiple;
}

}  // namespace

LinearJob linear_job(const StepContext& step, const Matrix& weight, const float* x, float* y) {
  return {.weight = &weight,
          .x = x,
          .x_stride = weight.cols,
          .rows = step.rows,
          .y = y,
          .y_stride = weight.rows,
          .rounding = step.rounding};
}

void run_linear(StepContext& step, std::span<const LinearJob> jobs) {
  struct Piece {
    const LinearJob* job;
    std::int64_t begin;
    std::int64_t end;
  };
  static thread_local std::vector<Piece> pieces;  // the caller's; keeps its capacity between steps
  pieces.clear();
  // With many jobs (experts) the jobs themselves spread over the threads.
  const bool split = static_cast<std::int64_t>(jobs.size()) < step.pool.size() * kPiecesPerThread;
  for (const LinearJob& job : jobs) {
    if (job.rows == 0) continue;
    const std::int64_t rows = split ? rows_per_piece(*job.weight, step.pool.size()) : job.weight->rows;
    for (std::int64_t begin = 0; begin < job.weight->rows; begin += rows) {
      pieces.push_back({&job, begin, std::min(begin + rows, job.weight->rows)});
    }
  }
  const auto gemm = step.gemm();
  const Piece* const first = pieces.data();
  step.pool.run(static_cast<std::int64_t>(pieces.size()), [gemm, first](std::int64_t index, int /*thread*/) {
    const Piece& piece = first[index];
    const LinearJob& job = *piece.job;
    gemm(*job.weight, piece.begin, piece.end, job.x, job.x_stride, job.rows, job.y, job.y_stride, job.rounding);
  });
}

}  // namespace perigee
