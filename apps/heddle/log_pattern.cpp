#include "log_pattern.h"

#include <memory>
#include <string_view>
#include <utility>

#include <spdlog/pattern_formatter.h>
#include <spdlog/spdlog.h>

#include "request_json/shown.h"

namespace heddle::app {
namespace {

constexpr size_t kLongest = 8192;

class PrintableText final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& line, const std::tm& /*time*/,
              spdlog::memory_buf_t& to) override {
    const std::string text =
        shown(std::string_view(line.payload.data(), line.payload.size()), kLongest);
    to.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PrintableText>();
  }
};

}  // namespace

void set_log_pattern(const std::string& pattern) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PrintableText>('*').set_pattern(pattern);
  spdlog::set_formatter(std::move(formatter));
}

}  // namespace heddle::app
