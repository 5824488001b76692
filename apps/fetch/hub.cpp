#include "fetch/hub.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "fetch/body_range.h"
#include "fetch/fetch_error.h"
#include "fetch/remote_files.h"
#include "fetch/web_get.h"
#include "files/json_tree.h"
#include "files/json_value.h"
#include "files/percent.h"
#include "files/printable.h"
#include "model/source/hub_cache.h"

namespace heddle::fetch {
namespace {

constexpr size_t kMostOfListing = size_t{32} << 20;

std::string environment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::string without_space_around(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

std::string stored_token() {
  std::string path = environment("HF_TOKEN_PATH");
  if (path.empty()) {
    std::string home = environment("HF_HOME");
    if (home.empty() && !environment("XDG_CACHE_HOME").empty()) {
      home = environment("XDG_CACHE_HOME") + "/huggingface";
    }
    if (home.empty()) home = environment("HOME") + "/.cache/huggingface";
    path = home + "/token";
  }
  std::ifstream file(path);
  std::string token;
  std::getline(file, token);
  return without_space_around(token);
}

/// Throws where the hub has not given what it was asked for.
void check_status(const std::string& endpoint, const WebAnswer& answer, const std::string& what) {
  if (answer.status == 200 || answer.status == 206) return;
  const std::string said = answer.header("x-error-message");
  const std::string end =
      " (" + std::to_string(answer.status) +
      (said.empty() ? std::string(")") : ", " + files::printable(said, 300) + ")");
  switch (answer.status) {
    case 401:
    case 403:
      fail(FetchFault::kForbidden, what, ": ", endpoint,
           " has none of this name that is public, or that the token opens", end);
    case 404: fail(FetchFault::kNotFound, what, ": ", endpoint, " does not have it", end);
    default: fail(FetchFault::kUnavailable, what, ": ", endpoint, " does not give it", end);
  }
}

bool is_commit(std::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == 40 && std::ranges::all_of(text, is_digit);
}

std::string text_in(const files::Json& object, const char* name) {
  const files::Json* const value = files::find_given(object, name);
  return value != nullptr && value->is_string() ? std::string(files::text_of(*value)) : "";
}

/// A member of `siblings`: a small file has the hash of its Git blob, a large one its SHA-256.
RemoteFile read_sibling(const files::Json& entry) {
  RemoteFile file{.name = text_in(entry, "rfilename"), .size = -1};
  const files::Json* const large = files::find_given(entry, "lfs");
  const files::Json* const size = files::find_given(large == nullptr ? entry : *large, "size");
  if (size != nullptr) file.size = files::integer_of(*size).value_or(-1);
  if (large == nullptr) {
    file.hash = {ContentHash::Kind::kGitBlob, text_in(entry, "blobId")};
  } else {
    const std::string hex = text_in(*large, "sha256");
    file.hash = {ContentHash::Kind::kSha256, hex.empty() ? text_in(*large, "oid") : hex};
  }
  return file;
}

/// "acme/sql" with its slash.
std::string path_of(const std::string& id) {
  const size_t slash = id.find('/');
  return files::percent_encoded(id.substr(0, slash)) + "/" +
         files::percent_encoded(id.substr(slash + 1));
}

std::string path_of_file(const std::string& name) {
  std::string path;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    path += (begin == 0 ? "" : "/") + files::percent_encoded(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return path;
}

/// Where the hub says more of a file than its listing, it says the same.
void check_announced(const RemoteListing& listing, const RemoteFile& file,
                     const WebAnswer& answer) {
  const auto differs = [&](const char* name, const std::string& expected) {
    const auto& headers = answer.first_headers.empty() ? answer.headers : answer.first_headers;
    const auto place = headers.find(name);
    return place != headers.end() && place->second != expected;
  };
  if (differs("x-repo-commit", listing.version) ||
      differs("x-linked-size", std::to_string(file.size))) {
    fail(FetchFault::kWrong, listing.id, ": ", file.name,
         " has another size or commit than in the listing");
  }
}

}  // namespace

bool is_token(const std::string& text) {
  return !text.empty() && text.size() <= 4096 &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

HubAccess hub_of_environment() {
  const std::string offline = environment("HF_HUB_OFFLINE");
  if (!offline.empty() && offline != "0") {
    fail(FetchFault::kRefused, "HF_HUB_OFFLINE is set, so nothing is fetched from a hub");
  }
  HubAccess access{.endpoint = environment("HF_ENDPOINT"), .token = environment("HF_TOKEN")};
  if (access.endpoint.empty()) access.endpoint = "https://huggingface.co";
  while (access.endpoint.ends_with('/')) access.endpoint.pop_back();
  const bool is_web =
      access.endpoint.starts_with("https://") || access.endpoint.starts_with("http://");
  if (!is_web || access.endpoint.find_first_of("?#@ ") != std::string::npos) {
    fail(FetchFault::kRefused, "HF_ENDPOINT is ", files::quote(access.endpoint),
         ", expected a URL such as https://hub.example");
  }
  access.token = without_space_around(access.token);
  if (!access.token.empty() && !is_token(access.token)) {
    fail(FetchFault::kRefused, "HF_TOKEN is no token: it has a space or a control character");
  }
  return access;
}

HubAccess hub_of_user() {
  HubAccess access = hub_of_environment();
  if (access.token.empty()) access.token = stored_token();
  if (!is_token(access.token)) access.token.clear();
  return access;
}

RemoteListing Hub::list(const std::string& id, const std::string& revision,
                        const std::stop_token& stop) const {
  const std::string asked = revision.empty() ? "main" : revision;
  if (!model::is_hub_id(id) || id.find("..") != std::string::npos) {
    fail(FetchFault::kRefused, files::quote(id), " is no name on a hub, expected ORG/NAME");
  }
  if (!is_revision(asked)) {
    fail(FetchFault::kRefused, files::quote(asked), " is no branch, tag or commit");
  }
  const std::string url = access_.endpoint + "/api/models/" + path_of(id) + "/revision/" +
                          files::percent_encoded(asked) + "?blobs=true";
  std::string text;
  const auto take = [&](const WebAnswer&, std::string_view bytes) {
    if (text.size() + bytes.size() > kMostOfListing) {
      fail(FetchFault::kWrong, id, ": its listing has more than ", kMostOfListing, " bytes");
    }
    text += bytes;
  };
  const WebAnswer answer = web_get({.url = url, .token = access_.token}, take, stop);
  check_status(access_.endpoint, answer, asked == "main" ? id : id + " at " + asked);
  const std::string where = "the listing of " + id;
  try {
    const files::JsonTree tree = files::parse_json(text, where);
    RemoteListing listing{.id = id, .version = text_in(*tree, "sha")};
    HEDDLE_CHECK(is_commit(listing.version), where, ": sha is no commit");
    const files::Json* const files = files::find_given(*tree, "siblings");
    HEDDLE_CHECK(files != nullptr && files->is_array(), where, ": siblings is missing");
    for (const files::Json& entry : files->get_array()) {
      listing.files.push_back(read_sibling(entry));
    }
    return listing;
  } catch (const FetchError&) {
    throw;
  } catch (const Error& error) {
    fail(FetchFault::kWrong, error.what());
  }
}

void Hub::read(const RemoteListing& listing, const RemoteFile& file, int64_t from,
               const OnBytes& on_bytes, const std::stop_token& stop) const {
  WebRequest request{.url = access_.endpoint + "/" + path_of(listing.id) + "/resolve/" +
                            listing.version + "/" + path_of_file(file.name),
                     .token = access_.token};
  read_body(request, listing.id + ": " + file.name, file.size, from, on_bytes, stop,
            [&](const WebAnswer& answer) {
              check_status(access_.endpoint, answer, listing.id + ": " + file.name);
              check_announced(listing, file, answer);
            });
}

}  // namespace heddle::fetch
