// What every form of attention does with the key list of a query.
#pragma once

#include "kernels/kernels.h"

namespace perigee::PERIGEE_PATH {
namespace {

constexpr std::int64_t kBlockKeys = 64;  // entries whose scores, softmax and values are done together

struct Range {
  std::int64_t first;
  std::int64_t last;
};

// The segment's entries of the query's key list.
inline Range entries_of(const MlaQuery& query, std::int64_t segment) {
  const std::int64_t begin = segment * kAttentionSegment;
  const std::int64_t end = begin + kAttentionSegment;
  const std::int64_t entries = query.selected == nullptr ? query.keys : query.selected_count;
  return {begin < entries ? begin : entries, end < entries ? end : entries};
}

inline void begin_partial(const MlaShape& shape, const MlaPartial& partial) {
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    partial.m[h] = -__builtin_inff();
    partial.l[h] = 0;
  }
  for (std::int64_t i = 0; i < shape.heads * shape.kv; ++i) partial.acc[i] = 0;
}

}  // namespace
}  // namespace perigee::PERIGEE_PATH
