// The operator % of strings.
#include <cmath>

#include "chat_template/values/format.h"
#include "chat_template/values/string_format.h"
#include "chat_template/values/text.h"
#include "files/printable.h"

namespace heddle::chat_template {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Budget& budget, std::string_view format, const Value& arguments)
      : budget_(budget), format_(format), arguments_(arguments), out_(budget) {}

  std::string run() {
    budget_.spend_bytes(format_.size());
    while (pos_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', pos_), format_.size());
      out_ += format_.substr(pos_, percent - pos_);
      pos_ = percent;
      if (pos_ < format_.size()) write_directive();
    }
    const bool is_mapping = !arguments_.is_tuple() && !arguments_.is_string() &&
                            (arguments_.dict() != nullptr || arguments_.sequence() != nullptr ||
                             arguments_.is_undefined());
    HEDDLE_CHECK(is_mapping || next_ == num_arguments(),
                 "not all arguments are used by the format with %");
    return out_.take();
  }

 private:
  [[nodiscard]] size_t num_arguments() const {
    return arguments_.is_tuple() ? arguments_.sequence()->items.size() : 1;
  }
  [[nodiscard]] char peek() const {
    HEDDLE_CHECK(pos_ < format_.size(), "a format with % ends too early");
    return format_[pos_];
  }
  const Value& next_argument() {
    HEDDLE_CHECK(next_ < num_arguments(), "too few arguments for the format with %");
    return arguments_.is_tuple() ? arguments_.sequence()->items[next_++] : (++next_, arguments_);
  }

  /// The value of %(key).
  const Value& keyed_argument() {
    HEDDLE_CHECK(arguments_.dict() != nullptr, "a format with %(name) takes a dict");
    const size_t start = ++pos_;
    for (int open = 1; open > 0; ++pos_) {
      if (peek() == '(') ++open;
      if (peek() == ')') --open;
    }
    const std::string_view key = format_.substr(start, pos_ - 1 - start);
    budget_.spend_bytes(key.size() + kObjectBytes);
    const Value* value = find_key(budget_, *arguments_.dict(), std::string(key));
    HEDDLE_CHECK(value != nullptr, "a format with % asks for ", files::quote(key),
                 ", which the dict does not have");
    return *value;
  }

  /// A width or precision: digits, or an argument for *.
  int64_t read_count() {
    if (peek() == '*') {
      ++pos_;
      const Value& count = next_argument();
      HEDDLE_CHECK(count.is_integral(), "* in a format takes an integer");
      HEDDLE_CHECK(std::abs(count.as_double()) <= INT32_MAX,
                   "a format asks for too many characters");
      return count.as_int();
    }
    int64_t count = 0;
    for (; peek() >= '0' && peek() <= '9'; ++pos_) {
      count = count * 10 + (peek() - '0');
      HEDDLE_CHECK(count <= INT32_MAX, "a format asks for too many characters");
    }
    return count;
  }

  void write_directive() {
    budget_.spend_steps(1);
    ++pos_;
    if (peek() == '%') {
      out_ += format_[pos_++];
      return;
    }
    const Value* value = peek() == '(' ? &keyed_argument() : nullptr;
    FormatSpec spec{.align = '>'};
    for (bool is_flag = true; is_flag;) {
      switch (peek()) {
        case '-': spec.align = '<'; break;
        case '+': spec.sign = '+'; break;
        case ' ': spec.sign = spec.sign == '+' ? '+' : ' '; break;
        case '#': spec.is_alternate = true; break;
        case '0': spec.has_zeros = true; break;
        default: is_flag = false;
      }
      pos_ += is_flag ? 1 : 0;
    }
    spec.width = read_count();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++pos_;
      spec.precision = std::max<int64_t>(read_count(), 0);
    }
    if (peek() == 'h' || peek() == 'l' || peek() == 'L') ++pos_;
    spec.type = peek();
    ++pos_;
    write(value == nullptr ? next_argument() : *value, spec);
  }

  void write(const Value& value, FormatSpec& spec) {
    switch (spec.type) {
      case 's': return write_text(to_text(budget_, value), spec);
      case 'r': return write_text(to_repr(budget_, value), spec);
      case 'a': return write_text(to_ascii_repr(budget_, value), spec);
      case 'c': return write_text(character_of(value), spec);
      default: break;
    }
    if (value.is_undefined()) throw Error(ErrorCode::kInvalidArgument, value.why_undefined());
    const bool is_integer = std::string_view("diuoxX").find(spec.type) != std::string_view::npos;
    HEDDLE_CHECK(is_integer || std::string_view("eEfFgG").find(spec.type) != std::string_view::npos,
                 "unknown format character ", files::quote(std::string(1, spec.type)));
    HEDDLE_CHECK(value.is_number(), "%", spec.type, " of a ", value.type_name());
    if (spec.has_zeros && spec.align != '<') {
      spec.align = '=';
      spec.fill = U'0';
    }
    out_ +=
        is_integer ? integer_text(value, spec) : format_number(budget_, value.as_double(), spec);
  }

  std::string integer_text(const Value& value, FormatSpec spec) {
    const bool is_decimal = std::string_view("diu").find(spec.type) != std::string_view::npos;
    if (is_decimal) spec.type = 'd';
    HEDDLE_CHECK(is_decimal || value.is_integral(), "%", spec.type, " of a float");
    Value number = value;
    if (value.is_float()) {
      const double whole = std::trunc(value.as_double());
      HEDDLE_CHECK(whole >= -0x1p63 && whole < 0x1p63, "an integer passes 64 bits");
      number = static_cast<int64_t>(whole);
    }
    if (spec.precision >= 0) throw_error(ErrorCode::kUnsupported, "a precision of an integer");
    return format_number(budget_, number, spec);
  }

  std::string character_of(const Value& value) {
    if (value.is_string()) {
      budget_.spend_bytes(value.bytes().size());
      HEDDLE_CHECK(text::length(value.bytes()) == 1, "%c takes one character");
      return value.bytes();
    }
    HEDDLE_CHECK(value.is_integral() && value.as_int() >= 0 && value.as_int() <= 0x10FFFF,
                 "%c takes a character or its number");
    const auto c = static_cast<char32_t>(value.as_int());
    if (c >= 0xD800 && c < 0xE000) throw_error(ErrorCode::kUnsupported, "a surrogate");
    std::string result;
    text::append_code_point(result, c);
    return result;
  }

  void write_text(std::string_view text, const FormatSpec& spec) {
    budget_.spend_bytes(text.size());
    if (spec.precision >= 0 && spec.type != 'c') {
      text = text.substr(0, text::byte_offset(text, static_cast<size_t>(spec.precision)));
    }
    out_ += pad_text(budget_, text, spec);
  }

  Budget& budget_;
  std::string_view format_;
  const Value& arguments_;
  BudgetedText out_;
  size_t pos_ = 0, next_ = 0;
};

}  // namespace

std::string percent_format(Budget& budget, std::string_view format, const Value& arguments) {
  return PercentFormatter(budget, format, arguments).run();
}

}  // namespace heddle::chat_template
