#include <nlohmann/json.hpp>

#include "server/api/reply_state.h"
#include "text/utf8.h"

namespace perigee::api {
namespace {

Json model_object(const ModelInfo& model) {
  Json meta = {{"n_ctx", model.context_tokens}, {"n_vocab", model.vocab}};
  if (model.parameters > 0) meta["n_params"] = model.parameters;
  return {{"id", model.id},         {"object", "model"}, {"created", model.created},
          {"owned_by", "perigee"},  {"root", model.id},  {"max_model_len", model.context_tokens},
          {"meta", std::move(meta)}};
}

}  // namespace

std::string models_body(const std::vector<ModelInfo>& models) {
  Json data = Json::array();
  for (const ModelInfo& model : models) data.push_back(model_object(model));
  return json_text({{"object", "list"}, {"data", std::move(data)}});
}

std::string model_body(const ModelInfo& model) {
  return json_text(model_object(model));
}

std::string tokenize_body(const TokenizeRequest& request, const std::vector<TokenId>& ids,
                          const std::vector<std::string>& strings, std::int64_t context_tokens) {
  if (request.llama_shape) {
    if (!request.with_strings) return json_text({{"tokens", ids}});
    Json tokens = Json::array();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      tokens.push_back({{"id", ids[i]}, {"piece", i < strings.size() ? valid_utf8(strings[i]) : ""}});
    }
    return json_text({{"tokens", std::move(tokens)}});
  }
  Json body = {{"count", ids.size()}, {"max_model_len", context_tokens}, {"tokens", ids}};
  if (request.with_strings) {
    Json list = Json::array();
    for (const std::string& text : strings) list.push_back(valid_utf8(text));
    body["token_strs"] = std::move(list);
  }
  return json_text(body);
}

std::string detokenize_body(std::string_view text) {
  const std::string valid = valid_utf8(text);
  return json_text({{"prompt", valid}, {"content", valid}});
}

std::string count_tokens_body(std::int64_t tokens) {
  return json_text({{"input_tokens", tokens}});
}

}  // namespace perigee::api
