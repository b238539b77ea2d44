// Spellings of tensor names. Exports of the same model differ in prefix and in a few old names; everything behind the
// loader knows the released ones only (spec model.md 1.6).
#pragma once

#include <string>
#include <string_view>

namespace perigee {

// The released spelling of a stored name, for a config with this prefix ("" or "language_model."):
// any mix of "language_model." and "model." in front of a text tensor, and self_attention_res.proj_weight and its
// kind for self_attention_res_proj.weight. Names that are not known come back unchanged.
std::string canonical_tensor_name(std::string_view stored, std::string_view prefix);

}  // namespace perigee
