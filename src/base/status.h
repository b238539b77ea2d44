// The one error type of the project. Nothing throws across a module boundary; a function that can fail
// returns Status, or Result<T> when it also has a value. Thread-safe as values are.
//
// A message names the thing (file, tensor, field, flag), what was expected and what was found.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

namespace perigee {

enum class StatusCode {
  kOk,
  kInvalidArgument,    // the caller's input is wrong; repeating it fails again
  kNotFound,           // a named thing does not exist
  kDataLoss,           // bytes on disk or on the wire are damaged
  kResourceExhausted,  // a stated limit (memory, length, queue) would be passed
  kUnimplemented,      // well formed, but not supported
  kUnavailable,        // may work later
  kCancelled,
  kInternal,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same error with a prefix that says where it happened: "shard 3: ...".
  Status with_context(std::string_view where) const {
    return ok() ? *this : Status(code_, fmt::format("{}: {}", where, message_));
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

template <typename... Args>
Status make_error(StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return {code, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status invalid_argument(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status data_loss(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kDataLoss, fmt::format(format, std::forward<Args>(args)...)};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    if (status_.ok()) status_ = Status(StatusCode::kInternal, "Result built from an ok Status without a value");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define PERIGEE_CONCAT_INNER(a, b) a##b
#define PERIGEE_CONCAT(a, b) PERIGEE_CONCAT_INNER(a, b)

#define PERIGEE_RETURN_IF_ERROR(expression)                                                              \
  do {                                                                                                   \
    if (::perigee::Status perigee_status_ = (expression); !perigee_status_.ok()) return perigee_status_; \
  } while (false)

// PERIGEE_ASSIGN_OR_RETURN(auto x, f());
#define PERIGEE_ASSIGN_OR_RETURN(lhs, expression) \
  PERIGEE_ASSIGN_OR_RETURN_INNER(PERIGEE_CONCAT(perigee_result_, __LINE__), lhs, expression)
#define PERIGEE_ASSIGN_OR_RETURN_INNER(result, lhs, expression) \
  auto result = (expression);                                   \
  if (!result.ok()) return result.status();                     \
  lhs = std::move(result).value()

}  // namespace perigee
