#include "server/api/api_error.h"

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace perigee::api {
namespace {

const char* anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case 529:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

Json or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

// Messages may quote client bytes: replace what is not UTF-8 instead of throwing.
std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

ApiError model_not_found(std::string_view model) {
  ApiError error;
  error.status = 404;
  error.code = "model_not_found";
  error.param = "model";
  error.message = fmt::format("model: no model \"{}\" is served here", model);
  return error;
}

ApiError path_not_found(std::string_view path) {
  ApiError error;
  error.status = 404;
  error.code = "not_found";
  error.message = fmt::format("no such path: {}", path);
  return error;
}

ApiError context_length_exceeded(std::int64_t prompt_tokens, std::int64_t context_tokens, std::string param) {
  ApiError error =
      bad_field(std::move(param), "the prompt has {} tokens, the context length is {}", prompt_tokens, context_tokens);
  error.code = "context_length_exceeded";
  return error;
}

ApiError invalid_api_key() {
  ApiError error;
  error.status = 401;
  error.code = "invalid_api_key";
  error.message = "missing or unknown API key";
  return error;
}

ApiError overloaded(std::string message) {
  return {.status = 429,
          .type = "rate_limit_reached_error",
          .code = "rate_limit_exceeded",
          .param = "",
          .message = std::move(message)};
}

ApiError loading() {
  return {.status = 503, .type = "unavailable_error", .code = "", .param = "", .message = "the model is loading"};
}

ApiError from_status(const Status& status, std::string param) {
  ApiError error;
  error.param = std::move(param);
  error.message = error.param.empty() ? status.message() : fmt::format("{}: {}", error.param, status.message());
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnimplemented:
      break;
    case StatusCode::kNotFound:
      error.status = 404;
      break;
    case StatusCode::kResourceExhausted:
      error.status = 429;
      error.type = "rate_limit_reached_error";
      error.code = "rate_limit_exceeded";
      break;
    case StatusCode::kUnavailable:
      error.status = 503;
      error.type = "unavailable_error";
      break;
    case StatusCode::kCancelled:
      error.status = 499;
      error.type = "request_cancelled";
      break;
    default:
      error.status = 500;
      error.type = "internal_server_error";
      break;
  }
  return error;
}

ApiError from_field_status(const Status& status) {
  ApiError error = from_status(status);
  const std::size_t colon = status.message().find(": ");
  if (colon != std::string::npos && status.message().find(' ') > colon) error.param = status.message().substr(0, colon);
  return error;
}

std::string openai_error_body(const ApiError& error) {
  return dump({{"error",
                {{"message", error.message},
                 {"type", error.type},
                 {"param", or_null(error.param)},
                 {"code", or_null(error.code)}}}});
}

std::string anthropic_error_body(const ApiError& error, std::string_view request_id) {
  return dump({{"type", "error"},
               {"error", {{"type", anthropic_type(error.status)}, {"message", error.message}}},
               {"request_id", request_id.empty() ? Json(nullptr) : Json(std::string(request_id))}});
}

}  // namespace perigee::api
