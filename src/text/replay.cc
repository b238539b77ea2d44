#include "text/replay.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <unordered_map>

#include "base/sha256.h"
#include "text/conversation.h"
#include "text/python_json.h"

namespace perigee {
namespace {

constexpr std::size_t kEntryOverhead = 256;  // list and map nodes, roughly

std::string random_key() {
  std::random_device device;
  std::string key;
  for (int i = 0; i < 8; ++i) {
    const unsigned int word = device();
    key.append(reinterpret_cast<const char*>(&word), sizeof(word));
  }
  return key;
}

// Length-prefixed, so that no two lists of fields give the same bytes.
class Digest {
 public:
  explicit Digest(std::string_view key) { add(key); }
  void add(std::string_view field) {
    hash_.update(std::to_string(field.size()) + ":");
    hash_.update(field);
  }
  std::string finish() {
    const Sha256Digest digest = hash_.finish();
    return {reinterpret_cast<const char*>(digest.data()), digest.size()};
  }

 private:
  Sha256 hash_;
};

// Clients parse arguments and write them again, so their spelling does not count.
std::string canonical_arguments(std::string_view text) {
  const auto parsed = parse_python_json(text);
  return parsed.ok() && *parsed ? dump_sorted_json(**parsed) : std::string(text);
}

std::string text_member(const Json& object, const char* key) {
  const Json* value = json_member(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

// The content as one text, given as a string or as text parts. False: a form that no answer of ours has.
bool message_content(const Json& message, std::string& out) {
  const Json* content = json_member(message, "content");
  if (content == nullptr) return true;
  if (content->is_string()) {
    out = content->get<std::string>();
    return true;
  }
  if (!content->is_array()) return false;
  for (const Json& part : *content) {
    const Json* type = json_member(part, "type");
    if (type == nullptr || *type != "text") return false;
    out += text_member(part, "text");
  }
  return true;
}

}  // namespace

struct AnswerStore::State {
  struct Entry {
    std::string digest;
    Channel start;
    std::vector<TokenId> ids;
    std::size_t size() const { return digest.size() + ids.size() * sizeof(TokenId) + kEntryOverhead; }
  };

  const std::size_t max_bytes;
  const std::string key = random_key();
  std::mutex mutex;
  std::list<Entry> entries;  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_digest;
  std::size_t bytes = 0;

  explicit State(std::size_t limit) : max_bytes(limit) {}

  void erase(std::list<Entry>::iterator entry) {
    bytes -= entry->size();
    by_digest.erase(entry->digest);
    entries.erase(entry);
  }

  std::string digest_of(std::string_view tenant, const Answer& answer) const {
    Digest digest(key);
    digest.add(tenant);
    digest.add(answer.reasoning.value_or(""));
    digest.add(answer.content.value_or(""));
    for (const ToolCall& call : answer.tool_calls) {
      digest.add(call.id);
      digest.add(call.name);
      digest.add(canonical_arguments(call.arguments));
    }
    return digest.finish();
  }
};

AnswerStore::AnswerStore(std::size_t max_bytes) : state_(std::make_unique<State>(max_bytes)) {}
AnswerStore::~AnswerStore() = default;

void AnswerStore::remember(std::string_view tenant, const Tokenizer& tokenizer, Channel start,
                           std::span<const TokenId> ids, const Answer& answer) {
  if (answer.finish == AnswerFinish::kLength || !answer.stop_string.empty()) return;
  const std::vector<TokenId> stops = stop_ids(tokenizer);
  if (!ids.empty() && std::find(stops.begin(), stops.end(), ids.back()) != stops.end()) ids = ids.first(ids.size() - 1);
  State::Entry entry{state_->digest_of(tenant, answer), start, {ids.begin(), ids.end()}};
  const std::size_t size = entry.size();
  const std::lock_guard lock(state_->mutex);
  if (size > state_->max_bytes) return;
  if (const auto old = state_->by_digest.find(entry.digest); old != state_->by_digest.end()) state_->erase(old->second);
  while (state_->bytes + size > state_->max_bytes) state_->erase(std::prev(state_->entries.end()));
  state_->entries.push_front(std::move(entry));
  state_->by_digest.emplace(state_->entries.front().digest, state_->entries.begin());
  state_->bytes += size;
}

bool AnswerStore::find(std::string_view tenant, const Json& message, Found& found) const {
  Answer answer;
  std::string content;
  if (!message_content(message, content)) return false;
  answer.content = std::move(content);
  answer.reasoning = text_member(message, "reasoning_content");
  if (answer.reasoning->empty()) answer.reasoning = text_member(message, "reasoning");
  if (const Json* calls = json_member(message, "tool_calls"); calls != nullptr) {
    if (!calls->is_array()) return false;
    for (const Json& item : *calls) {
      const Json* function = json_member(item, "function");
      const Json& body = function == nullptr ? item : *function;
      const Json* arguments = json_member(body, "arguments");
      std::string text = arguments == nullptr     ? "{}"
                         : arguments->is_string() ? arguments->get<std::string>()
                                                  : dump_sorted_json(to_python(*arguments));
      answer.tool_calls.push_back({text_member(item, "id"), text_member(body, "name"), std::move(text)});
    }
  }
  const std::string digest = state_->digest_of(tenant, answer);
  const std::lock_guard lock(state_->mutex);
  const auto entry = state_->by_digest.find(digest);
  if (entry == state_->by_digest.end()) return false;
  state_->entries.splice(state_->entries.begin(), state_->entries, entry->second);
  found.start = entry->second->start;
  found.ids = entry->second->ids;
  return true;
}

std::size_t AnswerStore::bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes;
}

std::size_t AnswerStore::size() const {
  const std::lock_guard lock(state_->mutex);
  return state_->entries.size();
}

}  // namespace perigee
