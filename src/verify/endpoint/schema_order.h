// JSON instances in the form in which constrained decoding makes them.
#pragma once

#include "base/json.h"

namespace perigee::verify {

// The value with the members of each object in the order of its schema, undeclared ones last, at every depth.
Json in_schema_order(const Json& schema, const Json& instance);

}  // namespace perigee::verify
