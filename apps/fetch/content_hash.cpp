#include "fetch/content_hash.h"

#include <algorithm>
#include <new>

#include <openssl/evp.h>

#include "heddle/core/error.h"

namespace heddle::fetch {
namespace {

const EVP_MD* algorithm_of(ContentHash::Kind kind) {
  switch (kind) {
    case ContentHash::Kind::kSha256: return EVP_sha256();
    case ContentHash::Kind::kGitBlob: return EVP_sha1();
    case ContentHash::Kind::kMd5: return EVP_md5();
  }
  return nullptr;
}

void check(int has_worked) {
  if (has_worked != 1) throw_error(ErrorCode::kUnsupported, "libcrypto does not hash");
}

}  // namespace

bool is_hash(const ContentHash& hash) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  const auto num_digits = 2 * static_cast<size_t>(EVP_MD_get_size(algorithm_of(hash.kind)));
  return hash.hex.size() == num_digits && std::ranges::all_of(hash.hex, is_digit);
}

struct ContentHasher::State {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context{EVP_MD_CTX_new()};
};

ContentHasher::ContentHasher(ContentHash::Kind kind, int64_t size)
    : state_(std::make_unique<State>()) {
  if (state_->context == nullptr) throw std::bad_alloc();
  check(EVP_DigestInit_ex(state_->context.get(), algorithm_of(kind), nullptr));
  if (kind != ContentHash::Kind::kGitBlob) return;
  std::string head = "blob " + std::to_string(size);
  head.push_back('\0');
  add(head);
}

ContentHasher::ContentHasher(ContentHasher&&) noexcept = default;
ContentHasher& ContentHasher::operator=(ContentHasher&&) noexcept = default;
ContentHasher::~ContentHasher() = default;

void ContentHasher::add(std::string_view bytes) {
  check(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()));
}

std::string ContentHasher::hex() {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  check(EVP_DigestFinal_ex(state_->context.get(), bytes, &size));
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += {kDigits[bytes[i] >> 4], kDigits[bytes[i] & 15]};
  return text;
}

}  // namespace heddle::fetch
