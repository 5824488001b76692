#include "fetch/s3.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <vector>

#include "fetch/body_range.h"
#include "fetch/fetch_error.h"
#include "fetch/remote_files.h"
#include "files/percent.h"
#include "files/printable.h"

namespace heddle::fetch {
namespace {

constexpr const char* kWeightsName = "adapter_model.safetensors";
constexpr size_t kVersionDigits = 40;

std::string first_of(std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const char* const text = std::getenv(name);
    if (text != nullptr && *text != '\0') return text;
  }
  return {};
}

bool is_part(std::string_view text) {
  const auto is_allowed = [](char c) { return c > ' ' && c <= '~' && c != '\\'; };
  return !text.empty() && text != "." && text != ".." && std::ranges::all_of(text, is_allowed);
}

/// The parts of "BUCKET/a/b" between its slashes.
std::vector<std::string> parts_of(const std::string& id) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= id.size();) {
    const size_t end = std::min(id.find('/', begin), id.size());
    parts.push_back(id.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void check_id(const std::string& id) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  };
  const std::vector<std::string> parts = parts_of(id);
  const bool is_id = id.size() <= 1024 && parts.size() > 1 && std::ranges::all_of(parts, is_part) &&
                     std::ranges::all_of(parts.front(), is_allowed);
  if (!is_id) {
    fail(FetchFault::kRefused, files::quote(id), " is no folder in S3, expected BUCKET/PREFIX");
  }
}

/// Throws where S3 has not given what it was asked for.
void check_answer(const WebAnswer& answer, const std::string& what) {
  const std::string end = " (" + std::to_string(answer.status) + ")";
  switch (answer.status) {
    case 200:
    case 206: return;
    case 301:
    case 400:
      fail(FetchFault::kRefused, what, ": the bucket is of another region than AWS_REGION", end);
    case 403:
      fail(FetchFault::kForbidden, what, ": S3 has none that the keys of the server open", end);
    case 404: fail(FetchFault::kNotFound, what, ": S3 does not have it", end);
    default: fail(FetchFault::kUnavailable, what, ": S3 does not give it", end);
  }
}

std::optional<int64_t> number_in(const std::string& text) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size() && number >= 0;
  return is_number ? std::optional(number) : std::nullopt;
}

/// The bytes of a text in base64 as hexadecimal digits; empty where it is none.
std::string hex_of_base64(const std::string& text) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text.substr(0, text.find('='))) {
    const size_t value = kLetters.find(c);
    if (value == kLetters.npos) return {};
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xffff;
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    const uint32_t byte = (bits >> num_bits) & 0xff;
    hex += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return hex;
}

std::string etag_of(const WebAnswer& answer) {
  std::string etag = answer.header("etag");
  std::erase(etag, '"');
  return etag;
}

/// The hash that S3 tells, but for the size of parts.
ContentHash hash_of(const WebAnswer& answer) {
  using Kind = ContentHash::Kind;
  ContentHash sha256{.kind = Kind::kSha256,
                     .hex = hex_of_base64(answer.header("x-amz-checksum-sha256"))};
  if (is_hash(sha256)) return sha256;
  const std::string etag = etag_of(answer);
  return {.kind = etag.find('-') == etag.npos ? Kind::kMd5 : Kind::kMd5OfParts, .hex = etag};
}

}  // namespace

S3Access s3_of_environment() {
  S3Access access{.endpoint = first_of({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}),
                  .keys = {.id = first_of({"AWS_ACCESS_KEY_ID"}),
                           .secret = first_of({"AWS_SECRET_ACCESS_KEY"}),
                           .session = first_of({"AWS_SESSION_TOKEN"}),
                           .region = first_of({"AWS_REGION", "AWS_DEFAULT_REGION"})}};
  if (access.keys.region.empty()) access.keys.region = "us-east-1";
  while (access.endpoint.ends_with('/')) access.endpoint.pop_back();
  const bool is_web = access.endpoint.empty() || access.endpoint.starts_with("https://") ||
                      access.endpoint.starts_with("http://");
  if (!is_web || access.endpoint.find_first_of("?#@ ") != std::string::npos) {
    fail(FetchFault::kRefused, "AWS_ENDPOINT_URL is ", files::quote(access.endpoint),
         ", expected a URL such as https://s3.example");
  }
  if (access.keys.id.empty() != access.keys.secret.empty()) {
    fail(FetchFault::kRefused,
         "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY one is set, expected both or neither");
  }
  for (const std::string* text : {&access.keys.id, &access.keys.session, &access.keys.region}) {
    if (!text->empty() && (!is_part(*text) || text->find(':') != text->npos)) {
      fail(FetchFault::kRefused, "AWS_ACCESS_KEY_ID, AWS_SESSION_TOKEN or AWS_REGION has a ",
           "character that none has");
    }
  }
  return access;
}

WebRequest S3::request_for(const std::string& id, const std::string& name) const {
  const std::vector<std::string> parts = parts_of(id + "/" + name);
  const bool has_host = access_.endpoint.empty() && parts.front().find('.') == std::string::npos;
  std::string url = access_.endpoint;
  if (url.empty()) {
    url = "https://" + (has_host ? parts.front() + "." : "") + "s3." + access_.keys.region +
          ".amazonaws.com";
  }
  for (size_t i = has_host ? 1 : 0; i < parts.size(); ++i) {
    url += "/" + files::percent_encoded(parts[i]);
  }
  return {.url = url, .aws = access_.keys};
}

RemoteListing S3::list(const std::string& id, const std::string& revision,
                       const std::stop_token& stop) const {
  check_id(id);
  if (!revision.empty()) {
    fail(FetchFault::kRefused, id, ": objects in S3 have no revisions; name another folder");
  }
  RemoteListing listing{.id = id};
  std::vector<std::string> names = text_names(RepositoryKind::kAdapter);
  names.emplace_back(kWeightsName);
  std::ranges::sort(names);  // adapter_config.json first: without it nothing else is asked for
  std::string all;
  for (const std::string& name : names) {
    WebRequest request = request_for(id, name);
    request.head_only = true;
    request.headers.emplace_back("x-amz-checksum-mode: ENABLED");
    WebAnswer answer = web_get(request, {}, stop);
    const bool must_be = name == "adapter_config.json" || name == kWeightsName;
    if (!must_be && (answer.status == 404 || answer.status == 403)) continue;
    check_answer(answer, "s3://" + id + "/" + name);
    RemoteFile file{.name = name,
                    .size = number_in(answer.header("content-length")).value_or(-1),
                    .hash = hash_of(answer)};
    if (file.hash.kind == ContentHash::Kind::kMd5OfParts) {
      request.url += "?partNumber=1";
      file.hash.part_bytes =
          number_in(web_get(request, {}, stop).header("content-length")).value_or(-1);
    }
    all += name + " " + etag_of(answer) + " " + file.hash.hex + "\n";
    listing.files.push_back(std::move(file));
  }
  ContentHasher hasher({.kind = ContentHash::Kind::kSha256}, 0);
  hasher.add(all);
  listing.version = hasher.hex().substr(0, kVersionDigits);
  return listing;
}

void S3::read(const RemoteListing& listing, const RemoteFile& file, int64_t from,
              const OnBytes& on_bytes, const std::stop_token& stop) const {
  const std::string what = "s3://" + listing.id + "/" + file.name;
  read_body(request_for(listing.id, file.name), what, file.size, from, on_bytes, stop,
            [&](const WebAnswer& answer) { check_answer(answer, what); });
}

}  // namespace heddle::fetch
