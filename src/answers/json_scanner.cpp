#include "answers/json_scanner.h"

#include <cstdio>

namespace heddle::answers {
namespace {

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

bool is_hex(char byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

}  // namespace

JsonScanner::Step JsonScanner::move(State state) {
  state_ = state;
  return Step::kInside;
}

JsonScanner::Step JsonScanner::end() {
  state_ = State::kComma;
  return brackets_.empty() ? Step::kLast : Step::kInside;
}

JsonScanner::Step JsonScanner::open(char bracket) {
  if (brackets_.size() == kMaxDepth) return Step::kWrong;
  brackets_.push_back(bracket);
  return move(bracket == '{' ? State::kKeyOrEnd : State::kValueOrEnd);
}

JsonScanner::Step JsonScanner::close(char bracket) {
  if (brackets_.empty() || brackets_.back() != (bracket == '}' ? '{' : '[')) return Step::kWrong;
  brackets_.pop_back();
  return end();
}

JsonScanner::Step JsonScanner::take_value(char byte) {
  switch (byte) {
    case '{':
    case '[': return open(byte);
    case ']': return state_ == State::kValueOrEnd ? close(byte) : Step::kWrong;
    case '"': is_key_ = false; return move(State::kString);
    case '-': return move(State::kMinus);
    case '0': return move(State::kZero);
    case 't': literal_ = "rue"; return move(State::kLiteral);
    case 'f': literal_ = "alse"; return move(State::kLiteral);
    case 'n': literal_ = "ull"; return move(State::kLiteral);
    default: return is_digit(byte) ? move(State::kDigits) : Step::kWrong;
  }
}

JsonScanner::Step JsonScanner::take_number(char byte) {
  const bool digit = is_digit(byte);
  const bool exponent = byte == 'e' || byte == 'E';
  switch (state_) {
    case State::kMinus:
      return digit ? move(byte == '0' ? State::kZero : State::kDigits) : Step::kWrong;
    case State::kDot: return digit ? move(State::kFraction) : Step::kWrong;
    case State::kExponent:
      if (byte == '+' || byte == '-') return move(State::kSign);
      return digit ? move(State::kPower) : Step::kWrong;
    case State::kSign: return digit ? move(State::kPower) : Step::kWrong;
    default: break;
  }
  if (digit) return state_ == State::kZero ? Step::kWrong : Step::kInside;
  const bool has_fraction = state_ == State::kFraction || state_ == State::kPower;
  if (byte == '.' && !has_fraction) return move(State::kDot);
  if (exponent && state_ != State::kPower) return move(State::kExponent);
  state_ = State::kComma;
  return brackets_.empty() ? Step::kPast : take(byte);
}

JsonScanner::Step JsonScanner::take_inner(char byte) {
  switch (state_) {
    case State::kString:
      if (byte == '\\') return move(State::kEscape);
      if (byte != '"') return Step::kInside;
      return is_key_ ? move(State::kColon) : end();
    case State::kEscape:
      if (byte == 'u') {
        hex_ = 4;
        return move(State::kHex);
      }
      return std::string_view("\"\\/bfnrt").find(byte) != std::string_view::npos
                 ? move(State::kString)
                 : Step::kWrong;
    case State::kHex:
      if (!is_hex(byte)) return Step::kWrong;
      return --hex_ == 0 ? move(State::kString) : Step::kInside;
    default:  // kLiteral
      if (byte != literal_.front()) return Step::kWrong;
      literal_.remove_prefix(1);
      return literal_.empty() ? end() : Step::kInside;
  }
}

JsonScanner::Step JsonScanner::take(char byte) {
  switch (state_) {
    case State::kString:
    case State::kEscape:
    case State::kHex:
    case State::kLiteral: return take_inner(byte);
    case State::kMinus:
    case State::kZero:
    case State::kDigits:
    case State::kDot:
    case State::kFraction:
    case State::kExponent:
    case State::kSign:
    case State::kPower: return take_number(byte);
    default: break;
  }
  if (is_space(byte)) return Step::kInside;
  switch (state_) {
    case State::kKeyOrEnd:
      if (byte == '}') return close(byte);
      [[fallthrough]];
    case State::kKey: is_key_ = true; return byte == '"' ? move(State::kString) : Step::kWrong;
    case State::kColon: return byte == ':' ? move(State::kValue) : Step::kWrong;
    case State::kComma:
      if (byte == ',' && !brackets_.empty()) {
        return move(brackets_.back() == '{' ? State::kKey : State::kValue);
      }
      return byte == '}' || byte == ']' ? close(byte) : Step::kWrong;
    default:  // kValue, kValueOrEnd
      return take_value(byte);
  }
}

void append_escaped(std::string& json, char byte) {
  switch (byte) {
    case '"': json += "\\\""; return;
    case '\\': json += "\\\\"; return;
    case '\n': json += "\\n"; return;
    case '\r': json += "\\r"; return;
    case '\t': json += "\\t"; return;
    default: break;
  }
  if (static_cast<unsigned char>(byte) >= 0x20) {
    json.push_back(byte);
    return;
  }
  char text[8];
  std::snprintf(text, sizeof text, "\\u%04x", static_cast<unsigned>(byte));
  json += text;
}

std::string escaped_string(std::string_view text) {
  std::string json = "\"";
  for (const char byte : text) append_escaped(json, byte);
  json.push_back('"');
  return json;
}

}  // namespace heddle::answers
