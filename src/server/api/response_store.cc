#include "server/api/response_store.h"

#include <nlohmann/json.hpp>

namespace perigee::api {
namespace {

std::string make_key(std::string_view tenant, const std::string& id) {
  std::string key(tenant);
  key += '\n';
  return key + id;
}

}  // namespace

void ResponseStore::put(std::string_view tenant, const std::string& id, Json messages, std::string body) {
  Entry entry;
  entry.key = make_key(tenant, id);
  // A document takes a few times the memory of its text; the bound is on what memory holds.
  entry.bytes = 4 * messages.dump().size() + body.size();
  entry.messages = std::make_shared<const Json>(std::move(messages));
  entry.body = std::make_shared<const std::string>(std::move(body));
  if (entry.bytes > max_bytes_) return;
  const std::lock_guard lock(mutex_);
  if (const auto old = by_key_.find(entry.key); old != by_key_.end()) {
    bytes_ -= old->second->bytes;
    entries_.erase(old->second);
    by_key_.erase(old);
  }
  bytes_ += entry.bytes;
  entries_.push_front(std::move(entry));
  by_key_[entries_.front().key] = entries_.begin();
  evict();
}

void ResponseStore::evict() {
  while (bytes_ > max_bytes_ || entries_.size() > max_entries_) {
    bytes_ -= entries_.back().bytes;
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

ResponseStore::Entry* ResponseStore::touch(std::string_view tenant, const std::string& id) {
  const auto found = by_key_.find(make_key(tenant, id));
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &entries_.front();
}

std::shared_ptr<const Json> ResponseStore::messages(std::string_view tenant, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const Entry* entry = touch(tenant, id);
  return entry == nullptr ? nullptr : entry->messages;
}

std::shared_ptr<const std::string> ResponseStore::body(std::string_view tenant, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const Entry* entry = touch(tenant, id);
  return entry == nullptr ? nullptr : entry->body;
}

bool ResponseStore::erase(std::string_view tenant, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const Entry* entry = touch(tenant, id);
  if (entry == nullptr) return false;
  bytes_ -= entry->bytes;
  by_key_.erase(entry->key);
  entries_.pop_front();
  return true;
}

std::size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace perigee::api
