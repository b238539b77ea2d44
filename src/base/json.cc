#include "base/json.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "base/file.h"

// Every other file declares it extern (cmake/precompiled.h).
template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace perigee {
namespace {

// Builds the document bottom up; `stack_` holds the open containers.
class GuardedBuilder : public nlohmann::json_sax<Json> {
 public:
  explicit GuardedBuilder(const JsonLimits& limits) : limits_(limits) {}

  Json take() { return std::move(root_); }
  const std::string& error() const { return error_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == string_t::npos)
      return fail(fmt::format("integer {} needs more than 64 bits", text));
    return add(value);
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return fail("binary value"); }

  bool start_object(std::size_t /*elements*/) override { return open(Json::object()); }
  bool start_array(std::size_t /*elements*/) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    Json& object = *stack_.back();
    if (object.contains(value)) {
      if (limits_.duplicates == DuplicateKeys::kRefuse) return fail(fmt::format("key \"{}\" appears twice", value));
    } else if (object.size() >= limits_.keys_per_object) {
      return fail(fmt::format("an object has more than {} keys", limits_.keys_per_object));
    }
    key_ = std::move(value);
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    if (error_.empty()) error_ = fmt::format("at byte {}: {}", position, error.what());
    return false;
  }

 private:
  bool fail(std::string message) {
    error_ = std::move(message);
    return false;
  }

  bool add(Json value) { return place(std::move(value)) != nullptr; }

  bool open(Json container) {
    if (stack_.size() >= limits_.depth) return fail(fmt::format("nested deeper than {} levels", limits_.depth));
    Json* slot = place(std::move(container));
    if (slot == nullptr) return false;
    stack_.push_back(slot);
    return true;
  }

  bool close() {
    stack_.pop_back();
    return true;
  }

  // A child keeps its address while it is open: its parent grows again only after the child is closed.
  Json* place(Json value) {
    if (++values_ > limits_.values) {
      fail(fmt::format("more than {} values", limits_.values));
      return nullptr;
    }
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }

  const JsonLimits& limits_;
  Json root_;
  std::vector<Json*> stack_;
  std::string key_;
  std::string error_;
  std::size_t values_ = 0;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return invalid_argument("JSON: expected at most {} bytes, found {}", limits.bytes, text.size());
  }
  if (text.starts_with("\xEF\xBB\xBF")) return invalid_argument("JSON: begins with a byte order mark");
  GuardedBuilder builder(limits);
  if (!Json::sax_parse(text, &builder)) {
    return invalid_argument("JSON: {}", builder.error().empty() ? "malformed document" : builder.error());
  }
  return builder.take();
}

Result<Json> read_json_file(const std::string& path, const JsonLimits& limits) {
  PERIGEE_ASSIGN_OR_RETURN(const std::string text, read_file(path, limits.bytes));
  auto document = parse_json(text, limits);
  if (!document.ok()) return document.status().with_context(path);
  return document;
}

}  // namespace perigee
