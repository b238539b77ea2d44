// The selection of select_top_k for scores that are made in pieces: each piece is looked at by the thread that made it,
// while it is in that thread's cache, and little is left to do alone.
#pragma once

#include <cstdint>

#include "base/buffer.h"

namespace perigee {

class PiecewiseTopK {
 public:
  // n scores in pieces of `piece`, the last one may be shorter; 0 < k < n. Allocates only where `room` >= n grows.
  void start(std::int64_t n, std::int64_t k, std::int64_t piece, std::int64_t room);
  std::int64_t pieces() const { return pieces_; }

  // Once for each piece, before bound(); on any thread. scores: all n.
  void note(std::int64_t index, const float* scores);
  // After all pieces were noted: a lower bound of the k-th largest score.
  void bound();
  // Once for each piece, after bound(); on any thread. Moves the scores of the piece that can be selected to its front.
  void collect(std::int64_t index, float* scores);
  // After all pieces were collected: the k positions of select_top_k, ascending. The scores are lost.
  void finish(float* scores, std::int32_t* selected);

 private:
  std::int64_t size_of(std::int64_t index) const;

  std::int64_t n_ = 0;
  std::int64_t k_ = 0;
  std::int64_t piece_ = 0;
  std::int64_t pieces_ = 0;
  std::int64_t groups_ = 0;  // of a piece
  float lowest_ = 0;
  Buffer<float> maxima_;            // [pieces, groups]
  Buffer<std::int64_t> counts_;     // [pieces] that were collected
  Buffer<std::int32_t> positions_;  // [n], those collected at the front of each piece
};

}  // namespace perigee
