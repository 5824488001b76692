#include "values/decisions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <set>

#include "heddle/core/error.h"

#include "answers/answer_style.h"
#include "api/bounds.h"
#include "api/translation.h"

namespace heddle::serve {
namespace {

using app::RowReader;

constexpr auto kDecisionFields =
    std::to_array<std::string_view>({"input", "questions", "chat_template_kwargs"});
constexpr size_t kMostOptions = 26;  // a letter each
constexpr size_t kMostLevels = 10;
constexpr int64_t kMostQuestions = 200;

enum class QuestionKind : uint8_t { kPredicate, kChoice, kScore };

/// What a letter stands for.
struct DecisionOption {
  json value;        // in the answer: a text, true or false; of a level its label
  std::string text;  // in the prompt
};

struct DecisionQuestion {
  QuestionKind kind = QuestionKind::kPredicate;
  json name{};  // null: none was given
  std::string instructions{};
  std::vector<DecisionOption> options{};
};

/// "label: description", or the label alone.
std::string described(const std::string& label, const json& option, const std::string& where) {
  const RowReader row(option, where);
  const json* const description = row.find("description");
  const std::string text = description == nullptr ? "" : row.text("description", *description);
  return text.empty() ? label : label + ": " + text;
}

void read_options(const json& question, const char* list_name, const char* value_name, size_t most,
                  const std::string& where, DecisionQuestion& to) {
  constexpr std::string_view kDescription = "description";
  const JsonArray& list = list_in(question, list_name, where);
  HEDDLE_CHECK(list.size() >= 2 && list.size() <= most, where, ".", list_name, " has ", list.size(),
               " entries, expected 2 to ", most);
  std::set<std::string> seen;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = place_in(where + "." + list_name, i);
    check_is_object(list[i], place);
    const std::string_view fields[] = {value_name, kDescription};
    RowReader(list[i], place).check_given_fields(fields);
    const json* const value = files::find_given(list[i], value_name);
    const bool may_be_flag = to.kind == QuestionKind::kChoice;
    const bool is_value =
        value != nullptr && (value->is_string() || (may_be_flag && value->is_bool()));
    if (!is_value) refuse_at(place, std::string(value_name) + " is missing or of the wrong type");
    const std::string shown = files::json_text(*value);
    HEDDLE_CHECK(!may_be_flag || seen.insert(shown).second, place, ".", value_name, " is ", shown,
                 " a second time");
    const std::string label = value->is_string() ? std::string(files::text_of(*value)) : shown;
    to.options.push_back({*value, described(label, list[i], place)});
  }
}

DecisionQuestion read_question(const json& given, const std::string& where) {
  constexpr std::string_view kKinds[] = {"predicate", "choice", "score"};
  check_is_object(given, where);
  const std::string_view kind = word_in(given, "type", where, kKinds);
  const std::string_view list = kind == "choice" ? "choices" : kind == "score" ? "levels" : "type";
  const std::string_view fields[] = {"type", "name", "instructions", list};
  const RowReader row(given, where);
  row.check_given_fields(fields);
  DecisionQuestion question{.instructions = std::string(text_in(given, "instructions", where))};
  if (const json* name = row.find("name")) question.name = row.text("name", *name);
  if (kind == "choice") {
    question.kind = QuestionKind::kChoice;
    read_options(given, "choices", "value", kMostOptions, where, question);
  } else if (kind == "score") {
    question.kind = QuestionKind::kScore;
    read_options(given, "levels", "label", kMostLevels, where, question);
  } else {
    question.options = {{false, "false"}, {true, "true"}};
  }
  return question;
}

/// A text, or messages of a user whose content is a text or a list of {"type": "input_text"}.
std::string read_input(const json& input) {
  if (input.is_string()) return std::string(files::text_of(input));
  if (!input.is_array()) throw bad_request("input is no text and no list of messages", "input");
  std::string text;
  const JsonArray& messages = input.get_array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string where = place_in("input", i);
    check_is_object(messages[i], where);
    constexpr std::string_view kUser[] = {"user"}, kMessage[] = {"message"};
    (void)word_in(messages[i], "role", where, kUser);
    (void)given_word_in(messages[i], "type", where, kMessage);
    const json* const content = files::find_given(messages[i], "content");
    if (content == nullptr) refuse_at(where, "content is missing");
    const auto add = [](const json& part, const std::string& place, Texts& texts) {
      constexpr std::string_view kText[] = {"input_text"};
      check_is_object(part, place);
      (void)word_in(part, "type", place, kText);
      texts.add(text_in(part, "text", place));
    };
    if (!text.empty()) text += "\n\n";
    text += read_texts(*content, where + ".content", "parts", add).joined();
  }
  return text;
}

char letter_of(size_t option) { return static_cast<char>('A' + option); }

/// The turn of a user: the input comes first, so that all questions share its keys and values.
std::string turn_of(const std::string& input, const DecisionQuestion& question) {
  std::string text = input + "\n\n" + question.instructions + "\n";
  for (size_t i = 0; i < question.options.size(); ++i) {
    text += std::string("(") + letter_of(i) + ") " + question.options[i].text + "\n";
  }
  return text + "Reply with a single letter.";
}

/// The tokens with which a reply begins that is one of the first `count` letters. Each must be one
/// token after what the template ends with.
std::vector<int32_t> letter_tokens(EngineThread& engine, const Request& request, size_t count) {
  constexpr size_t kTail = 64;
  answers::AnswerStyle style;
  const std::string prompt = engine.render(request, style);
  size_t begin = prompt.size() - std::min(prompt.size(), kTail);
  while (begin < prompt.size() && (static_cast<unsigned char>(prompt[begin]) & 0xC0) == 0x80) {
    ++begin;
  }
  const auto tokenizer = engine.tokenizer(request);
  const auto tokens_of = [&](const std::string& text) {
    Request plain;
    plain.text = text;
    plain.adapter = request.adapter;
    plain.adapters = request.adapters;
    plain.add_special_tokens = false;
    return tokenizer->tokenize(plain);
  };
  const std::string tail = prompt.substr(begin);
  const std::vector<int32_t> before = tokens_of(tail);
  std::vector<int32_t> letters;
  for (size_t i = 0; i < count; ++i) {
    const std::vector<int32_t> with = tokens_of(tail + letter_of(i));
    const bool is_one =
        with.size() == before.size() + 1 && std::equal(before.begin(), before.end(), with.begin());
    if (!is_one) {
      throw ApiError(501, "NotImplementedError",
                     "the model's tokenizer has no token for the letter of an option where a reply "
                     "begins");
    }
    letters.push_back(with.back());
  }
  return letters;
}

void prepare_questions(const std::vector<DecisionQuestion>& questions, EngineThread& engine,
                       Generation& generation) {
  const auto num_options = [](const DecisionQuestion& q) { return q.options.size(); };
  const size_t most = num_options(*std::ranges::max_element(questions, {}, num_options));
  const std::vector<int32_t> letters = letter_tokens(engine, generation.prompts.front(), most);
  for (size_t i = 0; i < questions.size(); ++i) {
    generation.prompts[i].values = {
        .kind = WantedValues::Kind::kTokenScores,
        .token_ids = {letters.begin(),
                      letters.begin() + static_cast<ptrdiff_t>(num_options(questions[i]))}};
  }
}

JsonObject answer_of(const DecisionQuestion& question, const Completion& row) {
  std::vector<double> probabilities;
  double mass = 0;  // of all letters over the whole vocabulary
  for (const float score : row.values) {
    probabilities.push_back(std::exp(double{score}));
    mass += probabilities.back();
  }
  for (double& each : probabilities) each /= mass;
  JsonObject answer{{"name", question.name}};
  if (question.kind == QuestionKind::kPredicate) {
    answer["type"] = "predicate";
    answer["probability"] = probabilities[1];
    return answer;
  }
  const bool is_choice = question.kind == QuestionKind::kChoice;
  JsonArray list;
  double expected = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    const json& value = question.options[i].value;
    expected += static_cast<double>(i) * probabilities[i];
    list.push_back(
        is_choice ? JsonObject{{"value", value}, {"probability", probabilities[i]}}
                  : JsonObject{{"value", i}, {"label", value}, {"probability", probabilities[i]}});
  }
  const auto best =
      static_cast<size_t>(std::ranges::max_element(probabilities) - probabilities.begin());
  answer["type"] = is_choice ? "choice" : "score";
  if (is_choice) {
    answer["choice"] = question.options[best].value;
  } else {
    answer["score"] = expected;
  }
  answer["probabilities"] = std::move(list);
  answer["confidence"] = probabilities[best] * mass;
  return answer;
}

JsonObject decision_usage(std::span<const Completion> rows) {
  int64_t tokens = 0, cached = 0;
  for (const Completion& row : rows) {
    tokens += row.prompt_tokens;
    cached += row.cached_tokens;
  }
  return {
      {"input_tokens", tokens},
      {"input_tokens_details", JsonObject{{"cached_tokens", cached}, {"cache_write_tokens", 0}}},
      {"output_tokens", 0},
      {"output_tokens_details", JsonObject{{"reasoning_tokens", 0}}},
      {"total_tokens", tokens}};
}

}  // namespace

ValuesCall read_decisions(const std::string& text, const app::ServeOptions& options) {
  auto [body, begun, request] = read_values_body(parse_body(text), kDecisionFields, options);
  ValuesCall call{.generation = std::move(begun)};
  Generation& generation = call.generation;
  const RowReader row(*body, "request");
  request.template_kwargs_json = row.echoed("chat_template_kwargs");
  // A reply that begins with thoughts does not begin with a letter.
  if (request.template_kwargs_json.empty()) {
    request.template_kwargs_json = R"({"enable_thinking": false})";
  }
  const json* const input = row.find("input");
  if (input == nullptr) throw bad_request("field input is missing", "input");
  const std::string about = read_input(*input);
  const JsonArray& list = list_in(*body, "questions", kBodyName);
  if (list.empty()) throw bad_request("questions is empty", "questions");
  check_count(list.size(), std::min(kMostQuestions, options.limits.prompts), "questions",
              "--max-prompts");
  const auto questions = std::make_shared<std::vector<DecisionQuestion>>();  // of both closures
  for (size_t i = 0; i < list.size(); ++i) {
    questions->push_back(read_question(list[i], place_in("questions", i)));
    request.messages = {{"user", turn_of(about, questions->back())}};
    generation.prompts.push_back(request);
  }
  call.prepare = [questions](EngineThread& engine, Generation& to) {
    prepare_questions(*questions, engine, to);
  };
  call.write = [questions](std::span<const Completion> rows, const CallNames& names) -> json {
    JsonObject answer{{"model", names.model}};
    JsonArray& answers = answer["answers"].emplace_array();
    for (size_t i = 0; i < rows.size(); ++i) answers.push_back(answer_of((*questions)[i], rows[i]));
    answer["usage"] = decision_usage(rows);
    return answer;
  };
  return call;
}

}  // namespace heddle::serve
