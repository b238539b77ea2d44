#include <string_view>

#include "base/embed.h"
#include "text/vocabulary.h"

PERIGEE_EMBED(perigee_tiktoken, PERIGEE_TIKTOKEN_MODEL)

namespace perigee {

std::string_view embedded_vocabulary() {
  return PERIGEE_EMBEDDED(perigee_tiktoken);
}

}  // namespace perigee
