#include <iostream>

#include "chat/input.h"

namespace heddle::app {
namespace {

class PlainInput : public ChatInput {
 public:
  ChatRead read(const std::string& /*prompt*/, std::string& line) override {
    if (!std::getline(std::cin, line)) return ChatRead::kEnd;
    if (line.ends_with('\r')) line.pop_back();
    return ChatRead::kLine;
  }
};

}  // namespace

std::unique_ptr<ChatInput> make_plain_input() { return std::make_unique<PlainInput>(); }

}  // namespace heddle::app
