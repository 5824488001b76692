#include "fetch/content_hash.h"

#include <new>

#include <openssl/evp.h>

#include "heddle/core/error.h"

namespace heddle::fetch {
namespace {

const EVP_MD* algorithm_of(ContentHash::Kind kind) {
  switch (kind) {
    case ContentHash::Kind::kSha256: return EVP_sha256();
    case ContentHash::Kind::kGitBlob: return EVP_sha1();
    case ContentHash::Kind::kMd5:
    case ContentHash::Kind::kMd5OfParts: return EVP_md5();
  }
  return nullptr;
}

void check(int has_worked) {
  if (has_worked != 1) throw_error(ErrorCode::kUnsupported, "libcrypto does not hash");
}

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

/// One hash of libcrypto.
class Digester {
 public:
  explicit Digester(const EVP_MD* algorithm) : algorithm_(algorithm), context_(EVP_MD_CTX_new()) {
    if (context_ == nullptr) throw std::bad_alloc();
    begin();
  }
  void add(std::string_view bytes) {
    check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
  }
  /// The bytes of the hash; what is added from here on is of another one.
  std::string end() {
    std::string bytes(EVP_MAX_MD_SIZE, '\0');
    unsigned size = 0;
    check(
        EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(bytes.data()), &size));
    bytes.resize(size);
    begin();
    return bytes;
  }

 private:
  void begin() { check(EVP_DigestInit_ex(context_.get(), algorithm_, nullptr)); }

  const EVP_MD* algorithm_;
  std::unique_ptr<EVP_MD_CTX, FreeContext> context_;
};

std::string hex_of(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

bool are_all(std::string_view text, std::string_view letters) {
  return text.find_first_not_of(letters) == text.npos;
}

}  // namespace

bool is_hash(const ContentHash& hash) {
  const auto num_digits = 2 * static_cast<size_t>(EVP_MD_get_size(algorithm_of(hash.kind)));
  const std::string_view hex = std::string_view(hash.hex).substr(0, num_digits);
  const std::string_view rest = std::string_view(hash.hex).substr(hex.size());
  if (hex.size() != num_digits || !are_all(hex, "0123456789abcdef")) return false;
  if (hash.kind != ContentHash::Kind::kMd5OfParts) return rest.empty();
  return hash.part_bytes > 0 && rest.size() > 1 && rest.size() < 8 && rest.front() == '-' &&
         are_all(rest.substr(1), "0123456789");
}

struct ContentHasher::State {
  ContentHash::Kind kind;
  int64_t part_bytes, of_part = 0;  // of_part: bytes of the part that is being hashed
  Digester digester;
  std::string parts{};  // the hashes of those before it
  int64_t num_parts = 0;

  void add_to_parts(std::string_view bytes) {
    while (!bytes.empty()) {
      if (of_part == part_bytes) end_part();
      const auto room = static_cast<size_t>(part_bytes - of_part);
      const std::string_view piece = bytes.substr(0, room);
      digester.add(piece);
      of_part += std::ssize(piece);
      bytes.remove_prefix(piece.size());
    }
  }
  void end_part() {
    parts += digester.end();
    of_part = 0;
    ++num_parts;
  }
};

ContentHasher::ContentHasher(const ContentHash& hash, int64_t size)
    : state_(new State{.kind = hash.kind,
                       .part_bytes = hash.part_bytes,
                       .digester = Digester(algorithm_of(hash.kind))}) {
  if (hash.kind != ContentHash::Kind::kGitBlob) return;
  std::string head = "blob " + std::to_string(size);
  head.push_back('\0');
  add(head);
}

ContentHasher::ContentHasher(ContentHasher&&) noexcept = default;
ContentHasher& ContentHasher::operator=(ContentHasher&&) noexcept = default;
ContentHasher::~ContentHasher() = default;

void ContentHasher::add(std::string_view bytes) {
  if (state_->kind == ContentHash::Kind::kMd5OfParts) return state_->add_to_parts(bytes);
  state_->digester.add(bytes);
}

std::string ContentHasher::hex() {
  if (state_->kind != ContentHash::Kind::kMd5OfParts) return hex_of(state_->digester.end());
  state_->end_part();
  state_->digester.add(state_->parts);
  return hex_of(state_->digester.end()) + "-" + std::to_string(state_->num_parts);
}

}  // namespace heddle::fetch
