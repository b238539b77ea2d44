#include "checkpoint/names.h"

namespace perigee {
namespace {

bool remove_front(std::string_view& text, std::string_view front) {
  if (!text.starts_with(front)) return false;
  text.remove_prefix(front.size());
  return true;
}

// "….mlp_res.proj_weight" -> "….mlp_res_proj.weight"
std::string modern_spelling(std::string_view name) {
  for (const std::string_view kind : {"proj", "norm"}) {
    const std::string ending = "_res." + std::string(kind) + "_weight";
    if (!name.ends_with(ending)) continue;
    std::string result(name.substr(0, name.size() - ending.size()));
    return result.append("_res_").append(kind).append(".weight");
  }
  return std::string(name);
}

}  // namespace

std::string canonical_tensor_name(std::string_view stored, std::string_view prefix) {
  std::string_view rest = stored;
  remove_front(rest, "language_model.");
  const bool is_head = rest.starts_with("lm_head.");
  remove_front(rest, "model.");
  const bool is_text = rest.starts_with("layers.") || rest.starts_with("embed_tokens.") || rest.starts_with("norm.") ||
                       rest.starts_with("output_attn_res");
  if (!is_head && !is_text) return std::string(stored);
  std::string name(prefix);
  if (is_text) name += "model.";
  return name + modern_spelling(rest);
}

}  // namespace perigee
