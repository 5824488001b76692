// What the tree calls the values of its JSON library, which their users see without its headers.
#pragma once

#include <boost/json/fwd.hpp>

namespace heddle::files {

/// A value whose destructor does not allocate, so that none can end the process. Members of an
/// object keep the order in which they were added.
using Json = boost::json::value;
using JsonObject = boost::json::object;
using JsonArray = boost::json::array;

}  // namespace heddle::files
