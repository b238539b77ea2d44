// A grammar as the engine sees it: which ids may be sampled next. One object a generated branch; called from one
// thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace perigee {

using TokenId = std::int32_t;

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Clears the bits of forbidden ids (bit t of word t / 32). False: nothing is masked at this step.
  virtual bool mask(std::vector<std::uint32_t>& allowed) = 0;
  virtual void accept(TokenId token) = 0;
  // For n > 1 and for speculation: a copy in the same state.
  virtual std::unique_ptr<TokenConstraint> clone() const = 0;
};

}  // namespace perigee
