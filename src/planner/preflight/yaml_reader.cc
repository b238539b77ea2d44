#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "planner/preflight/value.h"

namespace perigee::planner {

namespace {

constexpr std::size_t kYamlDepth = 64;
constexpr std::size_t kYamlNodes = 200000;
constexpr std::size_t kMaxDocuments = 1000;

struct LimitError : std::runtime_error {
  LimitError(int at, const std::string& what) : std::runtime_error(what), line(at) {}
  int line;
};

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string_view strip(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool is_number(const std::string& text) {
  if (text.empty()) return false;
  char* end = nullptr;
  (void)std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size() && text.find_first_of("0123456789") != std::string::npos &&
         text.find_first_of("xXpPnN") == std::string::npos;
}

// Builds the tree from parser events, because yaml-cpp's own nodes drop duplicate keys.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string_view text) : lines_(split_lines(text)) {}

  std::vector<ValuePtr> documents;

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents.size() >= kMaxDocuments) {
      throw LimitError(mark.line + 1, fmt::format("more than {} YAML documents", kMaxDocuments));
    }
    anchors_.clear();
  }
  void OnDocumentEnd() override {
    if (root_ != nullptr) documents.push_back(root_);
    root_ = nullptr;
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    auto value = make(ValueKind::kNull, mark, anchor);
    add(value);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) throw LimitError(mark.line + 1, "an alias of a node that is not complete");
    add(found->second);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& scalar) override {
    auto value = make(ValueKind::kString, mark, anchor);
    value->plain = tag == "?";
    value->text = locate(scalar, mark.line + 1);
    value->last_line = value->text.last_line();
    if (value->plain) {
      if (scalar == "true" || scalar == "false" || scalar == "True" || scalar == "False") {
        value->kind = ValueKind::kBool;
        value->text.value = scalar == "true" || scalar == "True" ? "true" : "false";
      } else if (scalar == "null" || scalar == "~" || scalar.empty()) {
        value->kind = ValueKind::kNull;
      } else if (is_number(scalar)) {
        value->kind = ValueKind::kNumber;
      }
    }
    add(value);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(make(ValueKind::kList, mark, anchor));
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(make(ValueKind::kMap, mark, anchor));
  }
  void OnMapEnd() override { close(); }

 private:
  struct Level {
    std::shared_ptr<Value> value;
    ValuePtr key;  // a map's key that waits for its value
    std::set<std::string, std::less<>> keys;
  };

  std::shared_ptr<Value> make(ValueKind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (++nodes_ > kYamlNodes) throw LimitError(mark.line + 1, fmt::format("more than {} YAML nodes", kYamlNodes));
    auto value = std::make_shared<Value>();
    value->kind = kind;
    value->line = value->last_line = mark.line + 1;
    value->text.marks.push_back({0, value->line});
    if (anchor != 0) pending_.emplace_back(anchor, value);
    if (anchor != 0 && kind != ValueKind::kList && kind != ValueKind::kMap) anchors_[anchor] = value;
    return value;
  }

  void add(const ValuePtr& value) {
    if (levels_.empty()) {
      root_ = value;
      return;
    }
    Level& level = levels_.back();
    level.value->last_line = std::max(level.value->last_line, value->last_line);
    if (level.value->kind == ValueKind::kList) {
      level.value->items.push_back(value);
    } else if (level.key == nullptr) {
      level.key = value;
    } else {
      const std::string name = level.key->scalar() ? level.key->str() : std::string("?");
      const Member member{name, level.key->line, value};
      if (level.keys.insert(name).second) {
        level.value->members.push_back(member);
      } else {
        level.value->duplicates.push_back(member);
      }
      level.key = nullptr;
    }
  }

  void open(const std::shared_ptr<Value>& value) {
    if (levels_.size() >= kYamlDepth) {
      throw LimitError(value->line, fmt::format("YAML deeper than {} levels", kYamlDepth));
    }
    levels_.push_back({value, nullptr, {}});
  }

  void close() {
    const std::shared_ptr<Value> value = levels_.back().value;
    levels_.pop_back();
    // Only a finished node may be aliased: the tree has no cycles.
    for (const auto& [anchor, node] : pending_) {
      if (node == value) anchors_[anchor] = value;
    }
    add(value);
  }

  // Maps a scalar's text back to source lines: the content of each following line is searched in order, which
  // fits plain, quoted, literal and folded scalars alike.
  Text locate(const std::string& scalar, int first_line) const {
    Text text(scalar, first_line);
    std::size_t at = 0;
    const std::size_t limit = std::min(lines_.size(), static_cast<std::size_t>(first_line) + 4000);
    for (std::size_t line = static_cast<std::size_t>(first_line); line < limit && at < scalar.size(); ++line) {
      const std::string_view piece = strip(lines_[line]);
      if (piece.empty()) continue;
      const std::size_t found = scalar.find(piece, at);
      if (found == std::string::npos) break;
      text.marks.push_back({found, static_cast<int>(line) + 1});
      at = found + piece.size();
    }
    // A literal or folded scalar begins on the line after its indicator.
    if (text.marks.size() > 1 && text.marks[1].offset == 0) text.marks.erase(text.marks.begin());
    return text;
  }

  std::vector<std::string_view> lines_;
  std::vector<Level> levels_;
  std::map<YAML::anchor_t, ValuePtr> anchors_;
  std::vector<std::pair<YAML::anchor_t, ValuePtr>> pending_;
  ValuePtr root_;
  std::size_t nodes_ = 0;
};

// yaml-cpp recurses for every level, so nesting is bounded before it sees the text. Indentation nests at most one
// level for two columns and flow brackets are counted outside quotes.
bool shallow(std::string_view text, ParseFailure& failure) {
  std::size_t depth = 0;
  int line = 1;
  for (const char c : text) {
    if (c == '\n') ++line;
    if (c == '[' || c == '{') {
      if (++depth > 400) {
        failure = {line, fmt::format("YAML deeper than {} levels", kYamlDepth)};
        return false;
      }
    }
    if ((c == ']' || c == '}') && depth > 0) --depth;
  }
  for (std::string_view rest : split_lines(text)) {
    std::size_t dashes = 0;
    while (rest.size() >= 2 && (rest[0] == '-' || rest[0] == '?') && rest[1] == ' ') {
      rest.remove_prefix(2);
      ++dashes;
    }
    if (dashes > 400) {
      failure = {1, fmt::format("YAML deeper than {} levels", kYamlDepth)};
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<ValuePtr> parse_located_yaml(std::string_view text, ParseFailure& failure) {
  if (!shallow(text, failure)) return {};
  TreeBuilder builder(text);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    failure = {error.mark.line + 1, error.msg};
    return {};
  } catch (const LimitError& error) {
    failure = {error.line, error.what()};
    return {};
  }
  return builder.documents;
}

}  // namespace perigee::planner
