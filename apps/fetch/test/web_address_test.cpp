#include "fetch/web_address.h"

#include <arpa/inet.h>
#include <cstring>
#include <netinet/in.h>
#include <string>

#include <gtest/gtest.h>

namespace heddle::fetch {
namespace {

bool is_private(const std::string& text) {
  sockaddr_storage storage{};
  if (text.find(':') == std::string::npos) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    EXPECT_EQ(::inet_pton(AF_INET, text.c_str(), &address.sin_addr), 1) << text;
    std::memcpy(&storage, &address, sizeof address);
  } else {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    EXPECT_EQ(::inet_pton(AF_INET6, text.c_str(), &address.sin6_addr), 1) << text;
    std::memcpy(&storage, &address, sizeof address);
  }
  return is_private_address(reinterpret_cast<const sockaddr&>(storage));
}

TEST(WebAddress, KnowsWhatIsNotOfTheInternet) {
  for (const char* text : {"0.0.0.0",
                           "10.1.2.3",
                           "100.64.0.1",
                           "100.127.255.255",
                           "127.0.0.1",
                           "169.254.169.254",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.168.1.1",
                           "198.19.0.1",
                           "224.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "fe80::1",
                           "febf::1",
                           "fc00::1",
                           "fdff::1",
                           "ff02::1",
                           "2001:db8::1",
                           "::ffff:127.0.0.1",
                           "::ffff:169.254.169.254",
                           "64:ff9b::10.0.0.1"}) {
    EXPECT_TRUE(is_private(text)) << text;
  }
}

TEST(WebAddress, LetsThoseOfTheInternetPass) {
  for (const char* text : {"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255",
                           "100.128.0.0", "128.0.0.1", "169.253.255.255", "172.15.255.255",
                           "172.32.0.0", "192.167.255.255", "223.255.255.255", "2606:4700::1111",
                           "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"}) {
    EXPECT_FALSE(is_private(text)) << text;
  }
}

TEST(WebAddress, TakesOtherFamiliesForPrivate) {
  sockaddr address{};
  address.sa_family = AF_UNIX;
  EXPECT_TRUE(is_private_address(address));
}

}  // namespace
}  // namespace heddle::fetch
