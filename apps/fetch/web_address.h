#pragma once

#include <sys/socket.h>

namespace heddle::fetch {

/// Whether an address is of this machine, of a private network, or of no single machine of the
/// internet: where a redirect of a public server has no business.
[[nodiscard]] bool is_private_address(const sockaddr& address);

}  // namespace heddle::fetch
