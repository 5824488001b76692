#include "heddle/engine/engine.h"

namespace heddle {

void Engine::reset_prefix_cache() noexcept {}

}  // namespace heddle
