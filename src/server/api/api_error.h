// Errors as clients see them, and the result type of this folder (spec chat.md 5.4).
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace perigee::api {

struct ApiError {
  int status = 400;                            // HTTP
  std::string type = "invalid_request_error";  // OpenAI's name; the Anthropic body derives its own from `status`
  std::string code;                            // empty: null
  std::string param;                           // the field, as "messages[2].content"; empty: null
  std::string message;
};

// A 400 that names the field.
template <typename... Args>
ApiError bad_field(std::string param, fmt::format_string<Args...> format, Args&&... args) {
  ApiError error;
  error.message = fmt::format("{}: {}", param, fmt::format(format, std::forward<Args>(args)...));
  error.param = std::move(param);
  return error;
}

ApiError model_not_found(std::string_view model);  // 404
ApiError path_not_found(std::string_view path);    // 404
ApiError context_length_exceeded(std::int64_t prompt_tokens, std::int64_t context_tokens, std::string param);
ApiError invalid_api_key();                // 401
ApiError overloaded(std::string message);  // 429; the caller adds Retry-After
ApiError loading();                        // 503
// Maps the engine's and the text layer's errors; `param` is the field that the failing input came from.
ApiError from_status(const Status& status, std::string param = "");

// The same for a status whose message begins with the request's field and a colon, as those of the renderer and of the
// grammar compiler do.
ApiError from_field_status(const Status& status);

// {"error":{"message","type","param","code"}}
std::string openai_error_body(const ApiError& error);
// {"type":"error","error":{"type","message"},"request_id"}
std::string anthropic_error_body(const ApiError& error, std::string_view request_id);

template <typename T>
class [[nodiscard]] ApiResult {
 public:
  ApiResult(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  ApiResult(ApiError error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const ApiError& error() const { return error_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  ApiError error_;
};

}  // namespace perigee::api
