#include "service/adapter_note.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <sstream>
#include <string_view>

#include "heddle/core/error.h"

#include "files/bounded_open.h"
#include "files/json_tree.h"
#include "files/json_value.h"

namespace heddle::serve {
namespace {

using json = files::Json;

constexpr uint64_t kMaxRead = 64 << 10;
constexpr size_t kMaxPrompts = 6, kMaxPromptBytes = 1000, kMaxAboutBytes = 300;
constexpr const char* kSpaces = " \t\r";

/// The first bytes of a file of the folder, to the end of a line; empty: there are none to read.
std::string head_of(const std::string& folder, const char* name) {
  try {
    std::error_code error;
    const std::string bound = std::filesystem::canonical(folder, error).string();
    if (error) return {};
    const files::OpenFile file = files::open_within(folder + "/" + name, {bound});
    std::string text(std::min(file.size(), kMaxRead), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    if (file.size() > kMaxRead) text.resize(text.rfind('\n') + 1);  // npos + 1: nothing
    return text;
  } catch (const Error&) {
    return {};
  }
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

void add_prompt(std::string_view text, std::vector<std::string>& prompts) {
  const bool is_taken = prompts.size() < kMaxPrompts && !trimmed(text).empty() &&
                        text.size() <= kMaxPromptBytes &&
                        std::ranges::find(prompts, text) == prompts.end();
  if (is_taken) prompts.emplace_back(text);
}

/// The prompt of a row, or what the user says last in its conversation.
void add_prompt_of(const json& row, std::vector<std::string>& prompts) {
  const json* const prompt = files::find_given(row, "prompt");
  if (prompt != nullptr && prompt->is_string()) return add_prompt(files::text_of(*prompt), prompts);
  const json* const messages = files::find_given(row, "messages");
  if (messages == nullptr || !messages->is_array()) return;
  const json* last = nullptr;
  for (const json& message : messages->get_array()) {
    const json* const role = files::find_given(message, "role");
    if (role != nullptr && files::is_text(*role, "user")) {
      last = files::find_given(message, "content");
    }
  }
  if (last != nullptr && last->is_string()) add_prompt(files::text_of(*last), prompts);
}

void add_eval_prompts(const std::string& text, std::vector<std::string>& prompts) {
  std::istringstream lines(text);
  for (std::string line; prompts.size() < kMaxPrompts && std::getline(lines, line);) {
    try {
      add_prompt_of(*files::parse_json(line, "eval.jsonl"), prompts);
    } catch (const Error&) {  // no row
    }
  }
}

/// The value of `- text: "..."`, a line of a widget, without its quotes; empty: it is another line.
std::string_view widget_text(std::string_view line) {
  line = trimmed(line);
  if (line.starts_with('-')) line = trimmed(line.substr(1));
  for (const std::string_view key : {"text:", "content:"}) {
    if (!line.starts_with(key)) continue;
    std::string_view value = trimmed(line.substr(key.size()));
    const bool is_quoted = value.size() >= 2 && value.front() == value.back() &&
                           (value.front() == '"' || value.front() == '\'');
    const bool is_block = value == "|" || value == ">" || value == "|-" || value == ">-";
    if (is_quoted) value = value.substr(1, value.size() - 2);
    return is_block ? std::string_view() : value;
  }
  return {};
}

/// Cut at a character, with an ellipsis.
std::string shortened(std::string text) {
  if (text.size() <= kMaxAboutBytes) return text;
  size_t end = kMaxAboutBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "\xE2\x80\xA6";
}

void add_readme(const std::string& text, AdapterNote& note) {
  std::istringstream lines(text);
  std::string line, paragraph;
  bool is_head = false, is_widget = false, is_code = false;
  for (int number = 0; std::getline(lines, line); ++number) {
    const std::string_view words = trimmed(line);
    if (words == "---" && (number == 0 || is_head)) {
      is_head = number == 0;
      continue;
    }
    if (is_head) {
      const bool is_key = !line.empty() && line.find_first_of(" \t-#\r") != 0;
      if (is_key) is_widget = words.starts_with("widget:");
      if (is_widget) add_prompt(widget_text(line), note.prompts);
      continue;
    }
    if (words.starts_with("```")) is_code = !is_code;
    const bool is_prose = !is_code && !words.empty() &&
                          std::string_view("#|<>-*!`=").find(words.front()) == std::string::npos;
    if (is_prose) {
      paragraph += (paragraph.empty() ? "" : " ") + std::string(words);
    } else if (!paragraph.empty()) {
      break;
    }
  }
  note.about = shortened(std::move(paragraph));
}

}  // namespace

AdapterNote read_adapter_note(const std::string& folder) {
  AdapterNote note;
  if (folder.empty()) return note;
  add_eval_prompts(head_of(folder, "eval.jsonl"), note.prompts);
  add_readme(head_of(folder, "README.md"), note);
  return note;
}

}  // namespace heddle::serve
