// What previous_response_id refers to: the conversation up to and including a reply, in the Chat form. Bounded by
// bytes and count, oldest use out first; parted by tenant, so that no key reads another's. Thread-safe.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json.h"

namespace perigee::api {

class ResponseStore {
 public:
  ResponseStore(std::size_t max_bytes, std::size_t max_entries) : max_bytes_(max_bytes), max_entries_(max_entries) {}

  // `messages`: the array that the next turn starts with. `body`: the response object, for GET /v1/responses/{id}.
  // An entry larger than the whole bound is not kept.
  void put(std::string_view tenant, const std::string& id, Json messages, std::string body);
  // Null if unknown or evicted.
  std::shared_ptr<const Json> messages(std::string_view tenant, const std::string& id);
  std::shared_ptr<const std::string> body(std::string_view tenant, const std::string& id);
  bool erase(std::string_view tenant, const std::string& id);
  std::size_t bytes() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Json> messages;
    std::shared_ptr<const std::string> body;
    std::size_t bytes = 0;
  };
  Entry* touch(std::string_view tenant, const std::string& id);
  void evict();

  const std::size_t max_bytes_;
  const std::size_t max_entries_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // most recent first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
  std::size_t bytes_ = 0;
};

}  // namespace perigee::api
