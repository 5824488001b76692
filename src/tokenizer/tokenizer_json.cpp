#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "heddle/core/error.h"

#include "files/json_tree.h"
#include "files/printable.h"
#include "tokenizer/huggingface/added_vocabulary.h"
#include "tokenizer/huggingface/bpe_model.h"
#include "tokenizer/huggingface/decoder.h"
#include "tokenizer/huggingface/json_node.h"
#include "tokenizer/huggingface/normalizer.h"
#include "tokenizer/huggingface/splitter.h"
#include "tokenizer/huggingface/unigram_model.h"
#include "tokenizer/tokenizer_state.h"

namespace heddle::tokenizer {
namespace {

using files::Json;

struct Encoder : TextEncoder {
  Encoder(AddedVocabulary&& added_tokens, Normalizer&& text_normalizer, Splitter&& text_splitter)
      : added(std::move(added_tokens)),
        normalizer(std::move(text_normalizer)),
        splitter(std::move(text_splitter)) {}

  AddedVocabulary added;
  Normalizer normalizer;
  Splitter splitter;
  std::unique_ptr<const Model> model;
  std::vector<bool> special;  // by id

  void encode(std::string_view text, ControlTokens control,
              std::vector<int32_t>& ids) const override {
    Model::Scratch scratch;
    if (control == ControlTokens::kPlain) scratch.forbidden = &special;
    const auto add = [&](int32_t id) { ids.push_back(id); };
    const auto encode_part = [&](size_t begin, size_t end) {
      const std::string_view part = text.substr(begin, end - begin);
      if (normalizer.empty()) return encode_normal(part, begin == 0, control, scratch, ids);
      encode_normal(normalizer.apply(part), begin == 0, control, scratch, ids);
    };
    added.split(text, AddedVocabulary::Phase::kRaw, control, encode_part, add);
  }

 private:
  void encode_normal(std::string_view text, bool begins_text, ControlTokens control,
                     Model::Scratch& scratch, std::vector<int32_t>& ids) const {
    const auto add = [&](int32_t id) { ids.push_back(id); };
    const auto encode_part = [&](size_t begin, size_t end) {
      splitter.split(text.substr(begin, end - begin), begins_text && begin == 0,
                     [&](std::string_view word) { model->encode(word, scratch, ids); });
    };
    added.split(text, AddedVocabulary::Phase::kNormalized, control, encode_part, add);
  }
};

struct JsonDecoder : TextDecoder {
  explicit JsonDecoder(const JsonNode& node) : decoder(node) {}

  TokenDecoder decoder;
  std::vector<std::string> tokens;  // by id
  std::vector<bool> has_token;

  void push(int32_t id, DecodeState& state, std::string& text) const override {
    if (has_token[size_t(id)]) decoder.push(tokens[size_t(id)], state, text);
  }
  void finish(DecodeState& state, std::string& text) const override { decoder.finish(state, text); }
};

/// A member of the file, or null.
JsonNode part_of(const JsonNode& file, const char* key) {
  static const Json kNull;
  const auto part = file.find(key);
  return part ? *part : JsonNode(kNull, file.path() + ": " + key);
}

/// Metaspace's prepend_scheme of "first" asks where in the original text a part begins, which is
/// known where what came before it leaves beginnings alone.
void check_first_word(const Splitter& splitter, const Normalizer& normalizer,
                      const AddedVocabulary& added, const std::string& path) {
  if (!splitter.prepends_to_first() || normalizer.empty()) return;
  if (splitter.num_stages() > 1 || added.has_normalized() || !normalizer.keeps_beginning()) {
    throw_error(ErrorCode::kUnsupported, path,
                " of type Metaspace with a prepend_scheme of first is not supported after this "
                "normalizer");
  }
}

/// The ids of a template's special token.
void append_special(const JsonNode& piece, const JsonNode& processor, std::vector<int32_t>& ids) {
  const std::string_view name = piece.at("id").string();
  const JsonNode tokens = processor.at("special_tokens");
  const Json* const token = tokens.object().if_contains(name);
  HEDDLE_CHECK(token != nullptr, piece.path(), " is ", files::quote(name),
               ", which special_tokens lacks");
  const JsonNode list = JsonNode(*token, tokens.path() + "." + files::printable(name)).at("ids");
  for (size_t i = 0; i < list.array().size(); ++i) {
    ids.push_back(static_cast<int32_t>(list.element(i).integer((int64_t{1} << 30) - 1)));
  }
}

/// [CLS] text [SEP]: what lies before and after the text.
void read_template(const JsonNode& node, Tokenizer::State& state) {
  node.allow_only({"type", "single", "pair", "special_tokens"});
  const JsonNode single = node.at("single");
  bool has_text = false;
  for (size_t i = 0; i < single.array().size(); ++i) {
    const JsonNode piece = single.element(i);
    piece.allow_only({"SpecialToken", "Sequence"});
    if (const auto special = piece.find("SpecialToken")) {
      append_special(*special, node, has_text ? state.end : state.begin);
      continue;
    }
    const std::string_view text = piece.at("Sequence").at("id").string();
    HEDDLE_CHECK(text == "A" && !has_text, piece.path(), " is the text ", files::quote(text),
                 ", expected A, once");
    has_text = true;
  }
  HEDDLE_CHECK(has_text, single.path(), " lacks the text");
}

void read_post_processor(const JsonNode& file, Tokenizer::State& state) {
  bool has_template = false;
  for (const JsonNode& node : flat_sequence(part_of(file, "post_processor"), "processors")) {
    const std::string_view type = node.at("type").string();
    if (type == "ByteLevel") {  // moves offsets
      node.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
      continue;
    }
    if (type != "TemplateProcessing" || std::exchange(has_template, true)) node.refuse_type();
    read_template(node, state);
  }
  const auto size = static_cast<int32_t>(state.bytes.size());
  for (const auto* ids : {&state.begin, &state.end}) {
    for (const int32_t id : *ids) {
      HEDDLE_CHECK(id < size, file.path(), ": post_processor adds the token ", id,
                   ", the vocabulary has ", size, " tokens");
    }
  }
}

std::unique_ptr<const Model> read_model(const JsonNode& node, ModelVocabulary& vocabulary,
                                        const Splitter& splitter) {
  const std::string_view type = node.at("type").string();
  if (type == "BPE") {
    return std::make_unique<BpeModel>(node, vocabulary, splitter.spells_bytes_last());
  }
  if (type != "Unigram") node.refuse_type();
  if (splitter.spells_bytes_last()) {
    throw_error(ErrorCode::kUnsupported, node.path(),
                " of type Unigram after a pre-tokenizer of type ByteLevel is not supported");
  }
  return std::make_unique<UnigramModel>(node, vocabulary);
}

/// Fills the tables by id, and the index of tokens by their bytes.
void fill_tokens(const ModelVocabulary& vocabulary, const AddedVocabulary& added,
                 const std::string& path, JsonDecoder& decoder, Tokenizer::State& state) {
  int64_t size = vocabulary.end_id;
  for (const auto& token : added.tokens()) size = std::max<int64_t>(size, int64_t{token.id} + 1);
  check_holes(size, vocabulary.ids.size() + added.tokens().size(), path);
  HEDDLE_CHECK(size > 0, path, " has no tokens");
  const auto rows = static_cast<size_t>(size);
  decoder.tokens.resize(rows);
  decoder.has_token.resize(rows);
  state.bytes.resize(rows);
  state.control.resize(rows);
  for (const auto& [token, id] : vocabulary.ids) {
    decoder.tokens[size_t(id)] = token;
    decoder.has_token[size_t(id)] = true;
  }
  for (const auto& token : added.tokens()) {
    decoder.tokens[size_t(token.id)] = token.decoded;
    decoder.has_token[size_t(token.id)] = true;
    state.control[size_t(token.id)] = token.special;
  }
  for (size_t id = 0; id < rows; ++id) {
    if (decoder.has_token[id]) state.bytes[id] = decoder.decoder.bytes_of(decoder.tokens[id]);
  }
  for (size_t id = 0; id < rows; ++id) {
    if (!decoder.has_token[id]) continue;
    (state.control[id] ? state.control_ids : state.ordinary_ids)
        .try_emplace(state.bytes[id], static_cast<int32_t>(id));
  }
}

}  // namespace

Tokenizer read_tokenizer_json(std::string_view json, const std::string& name,
                              std::span<const ExtraToken> extra) {
  const auto value = files::parse_json(json, name, {.depth = 32, .members = size_t{1} << 30});
  const JsonNode file(*value, name);
  // Cutting off and padding are for those who call, as transformers sees it.
  file.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer",
                   "pre_tokenizer", "post_processor", "decoder", "model"});
  if (const auto version = file.find("version"); version && version->string() != "1.0") {
    throw_error(ErrorCode::kUnsupported, version->path(), " is ", files::quote(version->string()),
                ", supported: 1.0");
  }
  Splitter splitter(part_of(file, "pre_tokenizer"));
  Normalizer normalizer(part_of(file, "normalizer"));
  const JsonNode model_node = file.at("model");
  ModelVocabulary vocabulary;
  if (model_node.at("type").string() == "BPE") {
    vocabulary = read_token_ids(model_node.at("vocab"));
  }
  auto model = read_model(model_node, vocabulary, splitter);
  AddedVocabulary added(part_of(file, "added_tokens"), extra, vocabulary, normalizer);
  check_first_word(splitter, normalizer, added, file.path() + ": pre_tokenizer");

  auto state = std::make_unique<Tokenizer::State>();
  auto decoder = std::make_unique<JsonDecoder>(part_of(file, "decoder"));
  fill_tokens(vocabulary, added, name, *decoder, *state);
  read_post_processor(file, *state);
  auto encoder =
      std::make_unique<Encoder>(std::move(added), std::move(normalizer), std::move(splitter));
  encoder->model = std::move(model);
  encoder->special = state->control;
  state->encoder = std::move(encoder);
  state->decoder = std::move(decoder);
  return Tokenizer(std::unique_ptr<const Tokenizer::State>(std::move(state)));
}

}  // namespace heddle::tokenizer
