#include "cache/snapshot_plan.h"

#include <algorithm>

namespace perigee {
namespace {

// The image whose inside holds `position`: some of its tokens lie before it and some after it.
const ImageSpan* image_around(std::span<const ImageSpan> images, std::int64_t position) {
  const auto after = std::upper_bound(images.begin(), images.end(), position,
                                      [](std::int64_t p, const ImageSpan& span) { return p <= span.begin; });
  if (after == images.begin()) return nullptr;
  const ImageSpan& image = *(after - 1);
  return position < image.begin + image.length ? &image : nullptr;
}

}  // namespace

std::vector<std::int64_t> plan_snapshots(const SnapshotRequest& request) {
  const std::int64_t restored = request.restored_tokens;
  std::vector<std::int64_t> positions;
  if (restored >= request.prompt_tokens) return positions;
  std::vector<std::int64_t> candidates;
  const auto propose = [&](std::int64_t position) {
    if (position <= restored || position >= request.prompt_tokens) return;
    if (const ImageSpan* image = image_around(request.images, position)) position = image->begin;
    if (position > restored) candidates.push_back(position);
  };
  propose(request.system_end);
  if (request.branch_states && request.common_tokens - restored > kMiddleGap && request.stored_goes_on) {
    propose(request.common_tokens);
  }
  if (request.interval > 0) {
    for (std::int64_t p = (restored / request.interval + 1) * request.interval; p < request.prompt_tokens;
         p += request.interval) {
      propose(p);
    }
  }
  std::sort(candidates.begin(), candidates.end());
  std::int64_t last = restored;
  for (const std::int64_t position : candidates) {
    if (position - last <= kMiddleGap) continue;
    positions.push_back(position);
    last = position;
  }
  positions.push_back(request.prompt_tokens);
  return positions;
}

bool snapshot_on_cancel(std::int64_t position, std::int64_t last_state, std::span<const ImageSpan> images) {
  return position - last_state > kMiddleGap && image_around(images, position) == nullptr;
}

}  // namespace perigee
