#include "access_warnings.h"

#include <sys/stat.h>

#include <boost/asio/ip/address.hpp>

namespace heddle::serve {
namespace {

/// Whether a server at this address is reached from this machine alone.
bool is_local(const std::string& host) {
  if (host == "localhost") return true;
  boost::system::error_code no_address;
  const auto address = boost::asio::ip::make_address(host, no_address);
  return !no_address && address.is_loopback();
}

bool is_open_to_others(const std::string& path) {
  struct stat info {};
  if (path.empty() || ::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  return (info.st_mode & (S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH)) != 0;
}

}  // namespace

std::vector<std::string> access_warnings(const app::ServeOptions& options) {
  std::vector<std::string> warnings;
  for (const auto& [option, path] : {std::pair("--api-key-file", options.api_key_file),
                                     {"--admin-key-file", options.admin_key_file},
                                     {"--tls-key", options.tls_key}}) {
    if (!is_open_to_others(path)) continue;
    warnings.push_back(std::string(option) + " " + path +
                       ": other users of this machine may read or change it; chmod 600 " + path);
  }
  if (options.api_key_file.empty() && !is_local(options.host)) {
    warnings.push_back("anyone who can reach " + options.host +
                       " may use the server; require a key with --api-key-file, or listen to this "
                       "machine alone with --host 127.0.0.1");
  }
  return warnings;
}

}  // namespace heddle::serve
