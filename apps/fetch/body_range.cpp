#include "fetch/body_range.h"

#include "fetch/fetch_error.h"
#include "files/printable.h"

namespace heddle::fetch {

void read_body(WebRequest request, const std::string& what, int64_t size, int64_t from,
               const OnBytes& on_bytes, const std::stop_token& stop,
               const std::function<void(const WebAnswer&)>& check) {
  if (from > 0) request.headers.push_back("Range: bytes=" + std::to_string(from) + "-");
  const std::string range =
      "bytes " + std::to_string(from) + "-" + std::to_string(size - 1) + "/" + std::to_string(size);
  int64_t at = -1;  // where the next bytes belong
  const auto check_all = [&](const WebAnswer& answer) {
    check(answer);
    const std::string got = answer.header("content-range");
    if (answer.status == 206 && got != range) {
      fail(FetchFault::kWrong, what, ": the server gives ", files::quote(got), ", asked for ",
           range);
    }
  };
  const auto take = [&](const WebAnswer& answer, std::string_view bytes) {
    if (at < 0) {
      check_all(answer);
      at = answer.status == 206 ? from : 0;
    }
    on_bytes(at, bytes);
    at += static_cast<int64_t>(bytes.size());
  };
  const WebAnswer answer = web_get(request, take, stop);
  if (at >= 0) return;
  if (answer.status == 416) return on_bytes(0, {});  // what is there already is not of this file
  check_all(answer);
  if (answer.status == 200) on_bytes(0, {});  // an empty file
}

}  // namespace heddle::fetch
