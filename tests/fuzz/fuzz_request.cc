// The request layer: any body on any path is parsed or refused with a 4xx that has a message; an accepted one can be
// answered by its encoder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "server/api/reply.h"
#include "server/api/request.h"
#include "server/api/response_store.h"

namespace {

void check_error(const perigee::api::ApiError& error) {
  if (error.status < 400 || error.status > 499 || error.message.empty()) std::abort();
  if (!perigee::parse_json(perigee::api::openai_error_body(error)).ok()) std::abort();
}

template <typename T>
void answer(const perigee::api::ApiResult<T>& request) {
  if (!request.ok()) return check_error(request.error());
  const auto encoder = perigee::api::make_encoder(*request, {.id = "0", .created = 0, .fingerprint = ""});
  encoder->begin();
  encoder->content(0, "x");
  encoder->finish(0, perigee::api::ReplyFinish::kStop, "");
  encoder->end();
  if (encoder->take().empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace perigee::api;
  if (size < 2) return 0;
  static ResponseStore store(1 << 20, 16);
  ApiConfig config;
  config.models = {"m"};
  config.context_tokens = 4096;
  config.mode = static_cast<ApiMode>(data[1] % 3);
  config.max_n = 4;
  const auto body = parse_body({reinterpret_cast<const char*>(data) + 2, size - 2});
  if (!body.ok()) {
    check_error(body.error());
    return 0;
  }
  switch (data[0] % 6) {
    case 0:
      answer(parse_chat_completions(*body, config));
      break;
    case 1:
      answer(parse_completions(*body, config));
      break;
    case 2:
      answer(parse_responses(*body, config, &store, "t"));
      break;
    case 3:
      answer(parse_messages(*body, config));
      break;
    case 4:
      if (const auto request = parse_tokenize(*body, config); !request.ok()) check_error(request.error());
      break;
    default:
      if (const auto request = parse_detokenize(*body, config); !request.ok()) check_error(request.error());
      break;
  }
  return 0;
}
