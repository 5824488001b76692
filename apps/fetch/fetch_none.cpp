// In place of web_get.cpp and content_hash.cpp where heddle is built without libcurl.
#include "fetch/content_hash.h"
#include "fetch/fetch_error.h"
#include "fetch/web_get.h"

namespace heddle::fetch {
namespace {

[[noreturn]] void refuse() {
  fail(FetchFault::kRefused,
       "this program was built without libcurl, so it fetches nothing; build it where "
       "libcurl4-openssl-dev is installed, with HEDDLE_FETCH=ON");
}

}  // namespace

struct ContentHasher::State {};
ContentHasher::ContentHasher(const ContentHash&, int64_t) { refuse(); }
ContentHasher::ContentHasher(ContentHasher&&) noexcept = default;
ContentHasher& ContentHasher::operator=(ContentHasher&&) noexcept = default;
ContentHasher::~ContentHasher() = default;
void ContentHasher::add(std::string_view) { refuse(); }
std::string ContentHasher::hex() { refuse(); }
bool is_hash(const ContentHash&) { refuse(); }

void start_web() { refuse(); }
std::string WebAnswer::header(const std::string&) const { refuse(); }
WebAnswer web_get(const WebRequest&, const OnBody&, const std::stop_token&) { refuse(); }

}  // namespace heddle::fetch
