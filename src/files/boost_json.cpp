// The code of Boost.JSON, so that its headers are all that heddle needs of it.
#include <boost/json/src.hpp>
