#include "service/conversation.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/core/error.h"

#include "answers/call_syntax.h"
#include "api/fields.h"
#include "request_json/field_error.h"

namespace heddle::serve {
namespace {

using answers::AnswerStyle;
using answers::ReasoningStyle;
using answers::ToolChoice;
using answers::ToolFormat;

/// What the operator says goes before what the template does.
void apply_options(const app::ServeOptions& options, AnswerStyle& style) {
  if (!options.tool_parser.empty()) {
    style.tools = answers::tool_format_named(options.tool_parser).value();
  }
  if (!options.reasoning_parser.empty()) {
    const bool reads_effort = style.reasoning.reads_effort;
    style.reasoning = answers::reasoning_named(options.reasoning_parser).value();
    style.reasoning.reads_effort = reads_effort;
  }
}

/// The texts that tell the parts of an answer apart.
std::vector<std::string_view> marks_of(const AnswerStyle& style) {
  std::vector<std::string_view> marks;
  for (const std::string* mark : {&style.reasoning.begin, &style.reasoning.end,
                                  &style.reasoning.text_begin, &style.reasoning.text_end}) {
    marks.push_back(*mark);
  }
  for (const answers::CallMark& mark : answers::call_marks(style.tools)) {
    marks.push_back(mark.text);
    marks.push_back(mark.end);
  }
  std::erase(marks, std::string_view());
  return marks;
}

/// Whether a mark has tokens that answers do not show.
bool has_special_marks(const AnswerStyle& style, const PromptTokenizer& tokenizer) {
  const std::shared_ptr<const TokenTexts> texts = tokenizer.texts();
  return std::ranges::any_of(marks_of(style), [&](std::string_view mark) {
    Request request;
    request.text = mark;
    request.add_special_tokens = false;
    return std::ranges::any_of(tokenizer.tokenize(request),
                               [&](int32_t id) { return texts->is_special(id); });
  });
}

void set_calls(Generation& generation) {
  const answers::ToolRequest& tools = generation.tools;
  if (tools.choice == ToolChoice::kNone) return;
  if (generation.style.tools == ToolFormat::kNone) {
    app::refuse_field("tools",
                      ": the chat template does not say in which form the model calls them; start "
                      "the server with --tool-parser, or send \"tool_choice\": \"none\" to have "
                      "them in the prompt and an answer in plain text");
  }
  if (generation.parser.finds_calls) answers::find_tools(generation.parser, tools.tools);
}

void set_thoughts(Generation& generation, Request& request) {
  const ReasoningStyle& style = generation.style.reasoning;
  const bool has_marks = !style.end.empty();
  generation.parser.finds_reasoning = generation.parser.finds_reasoning && has_marks;
  if (generation.gives_effort && !style.reads_effort) {
    add_ignored(generation.ignored, "reasoning_effort");
  }
  if (request.thinking.max_tokens < 0) return;
  if (!has_marks && generation.may_ignore_bound) {
    request.thinking = {};
    return add_ignored(generation.ignored, "thinking_token_budget");
  }
  if (!has_marks) {
    app::refuse_field("thinking_token_budget",
                      ": the chat template has no marks of thoughts; leave the field out, or start "
                      "the server with --reasoning-parser");
  }
  if (!style.is_on) {
    request.thinking = {};
  } else {
    request.thinking.begin = style.has_begun ? "" : style.begin;
    request.thinking.end = style.end;
  }
}

/// The field that an error's sentence begins with: "tools[0].function.name"; empty: with none.
std::string field_in(std::string_view what, const std::string& format_field) {
  const std::string_view word = what.substr(0, what.find_first_of(" :"));
  if (word.starts_with("format")) return format_field;
  const std::string_view name = word.substr(0, word.find_first_of(".["));
  const bool is_field = name == "tools" || name == "tool_choice" || name == "documents";
  return is_field ? std::string(word) : std::string();
}

/// The conversation as a template has rendered it.
void make_text(Request& chat, std::string text) {
  chat.messages.clear();
  for (JsonValue* field :
       {&chat.messages_json, &chat.tools_json, &chat.documents_json, &chat.template_kwargs_json})
    *field = {};
  chat.add_generation_prompt = true;
  chat.continue_final_message = false;
  chat.text = std::move(text);
  chat.add_special_tokens = chat.add_special_tokens.value_or(false);
}

void check_name(const char* option, const std::string& name, bool is_known,
                std::span<const std::string_view> known) {
  if (is_known) return;
  std::string list;
  for (const std::string_view each : known) {
    list += (list.empty() ? "" : ", ");
    list += each;
  }
  throw_error(ErrorCode::kInvalidArgument, option, " ", name, ": expected one of ", list);
}

/// The text of a conversation, and what its template says of answers.
struct Rendered {
  std::string text{};
  AnswerStyle style{};
};

Rendered render(const EngineThread& engine, const Generation& generation, const Request& chat) {
  Rendered rendered;
  rendered.text = generation.chat_template.empty()
                      ? engine.render(chat, rendered.style)
                      : engine.render(chat, generation.chat_template, rendered.style);
  return rendered;
}

void take_rendered(const EngineThread& engine, const app::ServeOptions& options, Rendered rendered,
                   Generation& generation, Request& chat) {
  apply_options(options, rendered.style);
  generation.style = answers::style_of_prompt(std::move(rendered.style), rendered.text);
  set_calls(generation);
  set_thoughts(generation, chat);
  chat.format = answers::answer_grammar(generation.style, generation.tools, chat.format);
  if (generation.parses() && chat.skip_special_tokens) {
    chat.skip_special_tokens = !has_special_marks(generation.style, *engine.tokenizer(chat));
  }
  if (generation.parser.finds_reasoning) chat.tell_tokens = true;  // they are counted
  make_text(chat, std::move(rendered.text));
}

/// What an adapter of each_adapter or its template refuses stays as it is: the engine refuses it,
/// too, which ends that row alone.
void render_each(const EngineThread& engine, const app::ServeOptions& options,
                 Generation& generation) {
  // Set apart, so that the functions below read `style` and `parser`.
  std::vector<EachAdapter> each = std::exchange(generation.each, {});
  const answers::ParserOptions wanted = generation.parser;
  for (size_t i = 0; i < each.size(); ++i) {
    Request& chat = generation.prompts[i];
    Rendered rendered;
    try {
      rendered = render(engine, generation, chat);
    } catch (const Error&) {
      continue;
    }
    generation.parser = wanted;
    take_rendered(engine, options, std::move(rendered), generation, chat);
    each[i].style = generation.style;
    each[i].parser = generation.parser;
  }
  generation.each = std::move(each);
}

void render_checked(const EngineThread& engine, const app::ServeOptions& options,
                    Generation& generation) {
  if (!generation.each.empty()) return render_each(engine, options, generation);
  Request& chat = generation.prompts.front();
  take_rendered(engine, options, render(engine, generation, chat), generation, chat);
}

}  // namespace

void render_conversation(const EngineThread& engine, const app::ServeOptions& options,
                         Generation& generation) {
  try {
    render_checked(engine, options, generation);
  } catch (const app::FieldError&) {
    throw;
  } catch (const Error& error) {
    const std::string field = field_in(error.what(), generation.format_field);
    if (field.empty()) throw;
    throw app::FieldError(field, error.what(), error.code());
  }
}

void check_parsers(const app::ServeOptions& options) {
  if (!options.tool_parser.empty()) {
    check_name("--tool-parser", options.tool_parser,
               answers::tool_format_named(options.tool_parser).has_value(),
               answers::tool_format_names());
  }
  if (!options.reasoning_parser.empty()) {
    check_name("--reasoning-parser", options.reasoning_parser,
               answers::reasoning_named(options.reasoning_parser).has_value(),
               answers::reasoning_names());
  }
}

}  // namespace heddle::serve
