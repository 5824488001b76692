#include "engine/adapters/settled_read.h"

#include <algorithm>
#include <exception>

#include "heddle/core/error.h"

#include "engine/adapters/adapter_folder.h"

namespace heddle {

files::FileStamps read_settled(const std::string& path, FunctionRef<void()> read) {
  using std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + kAdapterPatience;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    files::FileStamps stamps = files::wait_until_settled(path, std::max(left, milliseconds(0)),
                                                         [&] { return stamps_of(path); });
    std::exception_ptr failed;
    try {
      read();
    } catch (const Error&) {  // perhaps of half a file
      failed = std::current_exception();
    }
    if (stamps_of(path) != stamps) continue;
    if (failed) std::rethrow_exception(failed);
    return stamps;
  }
}

}  // namespace heddle
