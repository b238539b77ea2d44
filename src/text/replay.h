// Exact replay (spec chat.md 3.7). Recurrent layers reuse a prefix only when it is the same ids, but an answer that is
// rendered again often is not what the model sampled. So the sampled ids of answers are remembered, and rendering
// splices them when a client sends an answer back unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/parser.h"
#include "text/render.h"
#include "text/tokenizer.h"

namespace perigee {

// Bounded, thread-safe, forgets the least recently used answers first. Texts are kept as keyed digests only.
class AnswerStore {
 public:
  explicit AnswerStore(std::size_t max_bytes);
  ~AnswerStore();

  // Remembers an answer that ended by itself. `ids` are all sampled ids, the stop id included or not; `start` is the
  // channel that the prompt had opened. An answer that a stop string or the budget cut is not kept.
  void remember(std::string_view tenant, const Tokenizer& tokenizer, Channel start, std::span<const TokenId> ids,
                const Answer& answer);

  struct Found {
    Channel start = Channel::kThink;
    std::vector<TokenId> ids;  // without the stop id
  };
  // The answer that this assistant message repeats: same reasoning, content, calls and call ids, where absent, null
  // and empty are the same, and arguments are compared as JSON. False: render it.
  bool find(std::string_view tenant, const Json& message, Found& found) const;

  std::size_t bytes() const;
  std::size_t size() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace perigee
