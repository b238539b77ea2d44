#include "model/linear.h"

#include <algorithm>

#include "base/checked.h"

namespace perigee {
namespace {

// Enough pieces a thread to even out a core that is busy with something else, and no more: each piece packs its
// activations anew. Rows come in multiples of the widest register tile of any path.
constexpr std::int64_t kPiecesPerThread = 4;
constexpr std::int64_t kRowMultiple = 16;

// Multiply-adds of a job.
double work(const LinearJob& job) {
  return static_cast<double>(job.rows) * static_cast<double>(job.weight->rows) * static_cast<double>(job.weight->cols);
}

// Weight rows of a piece of about `share` multiply-adds.
std::int64_t rows_per_piece(const LinearJob& job, double share) {
  const double rows = share / (static_cast<double>(job.rows) * static_cast<double>(job.weight->cols));
  if (rows >= static_cast<double>(job.weight->rows)) return job.weight->rows;
  const std::int64_t pieces = ceil_div(job.weight->rows, std::max<std::int64_t>(static_cast<std::int64_t>(rows), 1));
  return ceil_div(ceil_div(job.weight->rows, pieces), kRowMultiple) * kRowMultiple;
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
  double total = 0;
  for (const LinearJob& job : jobs) total += work(job);
  const double share = total / static_cast<double>(step.pool.size() * kPiecesPerThread);
  for (const LinearJob& job : jobs) {
    if (job.rows == 0) continue;
    const std::int64_t rows = rows_per_piece(job, share);
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
