// Renders chat templates for templates.py. Each line of the input is an object: `templates` by
// name, the fields of chat_template::Conversation, `special_tokens` and `clock`; each line of the
// output has `text`, or `error` and whether it is a refusal.
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "chat_template/chat_templates.h"
#include "chat_template/conversation.h"
#include "testing/readers/tree_of.h"

namespace {

using heddle::chat_template::ChatTemplate;
using heddle::chat_template::ChatTemplates;
using heddle::chat_template::Conversation;
using heddle::testing::tree_of;
using nlohmann::ordered_json;

std::string render(const ordered_json& given) {
  const ChatTemplates templates =
      ChatTemplates::from(given.at("templates").get<std::map<std::string, std::string>>());
  Conversation conversation{.messages = tree_of(given.at("messages")),
                            .tools = tree_of(given.at("tools")),
                            .documents = tree_of(given.at("documents")),
                            .kwargs = tree_of(given.at("kwargs")),
                            .add_generation_prompt = given.at("add_generation_prompt")};
  ChatTemplate chosen = templates.pick(conversation.has_tools());
  chosen.set_clock([&] { return given.at("clock").get<std::time_t>(); });
  return chosen.render(*heddle::chat_template::variables_of(
      conversation, given.at("special_tokens").get<std::map<std::string, std::string>>()));
}

ordered_json answer(const std::string& line) {
  try {
    return {{"text", render(ordered_json::parse(line))}};
  } catch (const heddle::Error& error) {
    return {{"error", error.what()},
            {"is_refusal", error.code() == heddle::ErrorCode::kUnsupported}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(line).dump() << "\n";
  return 0;
}
