#include "model/linear.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"

namespace perigee {
namespace {

// Enough pieces a thread to even out a core that is busy with something else, and no more: each piece packs its
// activations anew. Rows come in multiples of the widest register tile of any path.
constexpr std::int64_t kPiecesPerThread = 4;
constexpr std::int64_t kRowMultiple = 16;
// Packing costs as much as multiplying by a dozen rows or two, so many threads share the tokens before they cut the
// rows shorter than this. The kernels read the weights again for every such part of the tokens anyway.
constexpr std::int64_t kEnoughRows = 384;
constexpr std::int64_t kTokenPart = 144;

// Multiply-adds of a job.
double work(const LinearJob& job) {
  return static_cast<double>(job.rows) * static_cast<double>(job.weight->rows) * static_cast<double>(job.weight->cols);
}

struct PieceSize {
  std::int64_t rows;    // of the weight
  std::int64_t tokens;  // rows of x
};

// Of a piece of about `share` multiply-adds.
PieceSize piece_size(const LinearJob& job, double share) {
  const std::int64_t rows = job.weight->rows;
  const std::int64_t pieces = static_cast<std::int64_t>(std::ceil(work(job) / share));
  const std::int64_t enough = std::max<std::int64_t>(rows / kEnoughRows, 1);
  const std::int64_t token_parts = std::clamp<std::int64_t>(pieces / enough, 1, ceil_div(job.rows, kTokenPart));
  const std::int64_t row_parts = std::clamp<std::int64_t>(ceil_div(pieces, token_parts), 1, rows);
  return {.rows = ceil_div(ceil_div(rows, row_parts), kRowMultiple) * kRowMultiple,
          .tokens = ceil_div(ceil_div(job.rows, token_parts), kTokenPart) * kTokenPart};
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
    std::int64_t begin;  // rows of the weight
    std::int64_t end;
    std::int64_t token;  // rows of x
    std::int64_t tokens;
  };
  static thread_local std::vector<Piece> pieces;  // the caller's; keeps its capacity between steps
  pieces.clear();
  double total = 0;
  for (const LinearJob& job : jobs) total += work(job);
  const double share = total / static_cast<double>(step.pool.size() * kPiecesPerThread);
  for (const LinearJob& job : jobs) {
    if (job.rows == 0) continue;
    const PieceSize size = piece_size(job, share);
    for (std::int64_t token = 0; token < job.rows; token += size.tokens) {
      const std::int64_t tokens = std::min(size.tokens, job.rows - token);
      for (std::int64_t begin = 0; begin < job.weight->rows; begin += size.rows) {
        pieces.push_back({&job, begin, std::min(begin + size.rows, job.weight->rows), token, tokens});
      }
    }
  }
  const auto gemm = step.gemm();
  const Piece* const first = pieces.data();
  step.pool.run(static_cast<std::int64_t>(pieces.size()), [gemm, first](std::int64_t index, int /*thread*/) {
    const Piece& piece = first[index];
    const LinearJob& job = *piece.job;
    gemm(*job.weight, piece.begin, piece.end, job.x + piece.token * job.x_stride, job.x_stride, piece.tokens,
         job.y + piece.token * job.y_stride, job.y_stride, job.rounding);
  });
}

}  // namespace perigee
