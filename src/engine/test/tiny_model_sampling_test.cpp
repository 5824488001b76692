// Drawn answers of a small random Llama: every field of a request's sampling reaches the draw, the
// draw for token i depends on seed and i alone, and log-probabilities are the model's own.
#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include <gtest/gtest.h>

#include "heddle/ops/sampling.h"

#include "engine/test/tiny_model.h"

namespace heddle {
namespace {

struct Drawn {
  int32_t token;
  float logprob;
};

/// Token `step` of an answer by the definition of `sample`, from logits [vocab_size].
Drawn draw(const std::vector<float>& logits, const SamplingOptions& options, int64_t step) {
  const auto vocab = std::ssize(logits);
  std::vector<std::byte> memory(sample_workspace_bytes(1, vocab));
  Workspace workspace(memory);
  ExecContext ctx;
  ctx.workspace = &workspace;
  Drawn drawn{};
  sample(ctx, host_view(&drawn.token, {1}), host_view(&drawn.logprob, {1}),
         host_view(logits.data(), {1, vocab}),
         {.temperature = host_view(&options.temperature, {1}),
          .top_k = host_view(&options.top_k, {1}),
          .top_p = host_view(&options.top_p, {1}),
          .min_p = host_view(&options.min_p, {1}),
          .seed = host_view(&options.seed, {1}),
          .step = host_view(&step, {1})});
  return drawn;
}

/// What the request makes of logits [vocab_size] after its prompt and these tokens: biases, then
/// repetition of prompt and answer, then frequency and presence of the answer.
std::vector<float> adjusted(std::vector<float> logits, const Request& request,
                            const std::vector<int32_t>& answer) {
  const SamplingOptions& o = request.sampling;
  for (const auto& [token, bias] : request.logit_bias) logits[size_t(token)] += bias;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto token = static_cast<int32_t>(i);
    const auto count = std::ranges::count(answer, token);
    double x = logits[i];
    if (count + std::ranges::count(*request.token_ids, token) > 0) {
      x = x > 0 ? x / o.repetition_penalty : x * o.repetition_penalty;
    }
    x -= double{o.frequency_penalty} * static_cast<double>(count);
    if (count > 0) x -= o.presence_penalty;
    logits[i] = static_cast<float>(x);
  }
  return logits;
}

/// The request's answer, token by token from the logits of the prompt so far.
std::vector<Drawn> answer_of(Engine& engine, const Request& request) {
  std::vector<Drawn> answer;
  std::vector<int32_t> tokens = *request.token_ids;
  std::vector<int32_t> drawn;
  for (int64_t i = 0; i < request.max_tokens; ++i) {
    const std::vector<float> logits = engine.prompt_logits(testing::request_of(tokens));
    answer.push_back(draw(adjusted(logits, request, drawn), request.sampling, i));
    tokens.push_back(answer.back().token);
    drawn.push_back(answer.back().token);
  }
  return answer;
}

std::vector<int32_t> tokens_of(const std::vector<Drawn>& answer) {
  std::vector<int32_t> tokens;
  for (const Drawn& drawn : answer) tokens.push_back(drawn.token);
  return tokens;
}

constexpr SamplingOptions kPlain{.temperature = 1.5f, .seed = 7};
const std::vector<std::pair<const char*, SamplingOptions>> kOneFieldSet = {
    {"temperature", {.temperature = 0.5f, .seed = 7}},
    {"top_k", {.temperature = 1.5f, .top_k = 4, .seed = 7}},
    {"top_p", {.temperature = 1.5f, .top_p = 0.4f, .seed = 7}},
    {"min_p", {.temperature = 1.5f, .min_p = 0.3f, .seed = 7}},
    {"seed", {.temperature = 1.5f, .seed = 8}},
    {"a seed of 64 bits", {.temperature = 1.5f, .seed = 7 + (int64_t{1} << 40)}}};

/// log softmax of the model's logits after these tokens, in double, and how far from it the
/// engine's may be.
struct LogSoftmax {
  std::vector<double> values;
  double tolerance;
};
LogSoftmax log_softmax(const model::ref::Llama& model, const std::vector<int32_t>& tokens) {
  std::vector<double> logits = model::ref::logits(model, tokens);
  const double tolerance = testing::logprob_tolerance(logits);
  double sum = 0;
  for (const double x : logits) sum += std::exp(x);
  for (double& x : logits) x -= std::log(sum);
  return {std::move(logits), tolerance};
}

class TinyModelSampling : public ::testing::Test {
 protected:
  /// The answer is that of the definition. On a GPU it is as long: the logits after an answer that
  /// is given as a prompt have other bits there, which may change a draw.
  void expect_drawn(const Completion& answer, const Request& request) {
    ASSERT_EQ(std::ssize(answer.token_ids), request.max_tokens) << answer.error;
    if (!testing::is_on_cpu()) return;
    EXPECT_EQ(answer.token_ids, tokens_of(answer_of(engine, request)));
  }
  /// Neither temperature nor filters nor penalties show in its log-probabilities.
  void expect_logprobs(const Completion& answer, std::vector<int32_t> tokens) {
    ASSERT_EQ(answer.logprobs.size(), answer.token_ids.size());
    for (size_t t = 0; t < answer.token_ids.size(); ++t) {
      const LogSoftmax want = log_softmax(model, tokens);
      tokens.push_back(answer.token_ids[t]);
      EXPECT_NEAR(answer.logprobs[t], want.values[size_t(tokens.back())], want.tolerance);
    }
  }

  model::ref::Llama model = model::random_llama(testing::tiny_config(), true);
  Engine engine = testing::TinyModel(model).engine({.max_batch = 4, .prefill_chunk = 6});
};

TEST_F(TinyModelSampling, EveryFieldOfARequestReachesTheDraw) {
  const Request plain = testing::request_of(testing::random_tokens(5), 24, kPlain);
  std::vector<Request> requests{plain};
  for (const auto& [field, sampling] : kOneFieldSet) {
    requests.push_back(plain);
    requests.back().sampling = sampling;
  }
  const std::vector<Completion> answers = testing::run_all(engine, requests);
  for (size_t i = 0; i < answers.size(); ++i) {
    SCOPED_TRACE(i == 0 ? "none" : kOneFieldSet[i - 1].first);
    expect_drawn(answers[i], requests[i]);
    if (i > 0) {
      EXPECT_NE(answers[i].token_ids, answers[0].token_ids);
    }
  }
}

TEST_F(TinyModelSampling, DrawsDoNotDependOnThePromptsLength) {
  std::vector<Request> requests;
  for (const int64_t length : {1, 2, 3, 8, 20}) {
    requests.push_back(testing::request_of(testing::random_tokens(length), 10, kPlain));
  }
  const std::vector<Completion> answers = testing::run_all(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_drawn(answers[i], requests[i]);
  }
}

/// Rows with and without penalties in one batch: each is the definition's, and log-probabilities
/// are those of the model.
TEST_F(TinyModelSampling, PenaltiesAndBiasesReachTheDraw) {
  const Request plain = testing::request_of(testing::random_tokens(9), 20, kPlain);
  std::vector<Request> requests(7, plain);
  requests[1].sampling.repetition_penalty = 1.6f;
  requests[2].sampling.repetition_penalty = 0.4f;
  requests[3].sampling.frequency_penalty = -2.0f;
  requests[4].sampling.presence_penalty = -2.0f;
  requests[5].logit_bias = {{200, 6.0f}, {3, -100.0f}};
  requests[6].sampling = {.temperature = 0.0f, .repetition_penalty = 1.3f};
  requests[6].sampling.frequency_penalty = 0.5f;
  requests[6].sampling.presence_penalty = 0.25f;
  const std::vector<Completion> answers = testing::run_all(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    expect_drawn(answers[i], requests[i]);
    if (i > 0) {
      EXPECT_NE(answers[i].token_ids, answers[0].token_ids);
    }
    expect_logprobs(answers[i], *requests[i].token_ids);
    testing::expect_same(testing::run_all(engine, {requests[i]}).front(), answers[i], "alone");
  }
}

/// k tokens by falling log-probability, each with that of the model.
void expect_top(std::span<const int32_t> ids, std::span<const float> logprobs,
                const LogSoftmax& want) {
  std::vector<double> sorted = want.values;
  std::ranges::sort(sorted, std::greater<>());
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_NEAR(logprobs[i], sorted[i], want.tolerance);
    EXPECT_NEAR(logprobs[i], want.values.at(size_t(ids[i])), want.tolerance);
  }
}

/// Prompts longer than what a step scores, in a batch with rows that decode: each token of prompt
/// and answer has the model's own, whatever the row's penalties are, and the answer is as without.
TEST_F(TinyModelSampling, TopAndPromptLogProbabilitiesAreThoseOfTheModel) {
  std::vector<Request> requests;
  for (const int64_t length : {1, 2, 40, 45}) {
    requests.push_back(testing::request_of(testing::random_tokens(length), 5, kPlain));
    Request& each = requests.back();
    each.top_logprobs = static_cast<int32_t>(length % 7);
    each.prompt_logprobs = length != 2;
    if (length == 40) each.sampling.repetition_penalty = 1.5f;
    if (length == 45) each.max_tokens = 0;
  }
  const std::vector<Completion> answers = testing::run_all(engine, requests);
  for (size_t r = 0; r < requests.size(); ++r) {
    SCOPED_TRACE(r);
    const Completion& answer = answers[r];
    const std::vector<int32_t>& prompt = *requests[r].token_ids;
    const auto k = static_cast<size_t>(requests[r].top_logprobs);
    EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
    EXPECT_EQ(answer.token_ids.size(), size_t(requests[r].max_tokens));
    ASSERT_EQ(answer.top_token_ids.size(), k * answer.token_ids.size());
    ASSERT_EQ(answer.prompt_logprobs.size(), requests[r].prompt_logprobs ? prompt.size() : 0);
    std::vector<int32_t> tokens{prompt[0]};
    for (size_t t = 1; t < prompt.size() && !answer.prompt_logprobs.empty(); ++t) {
      const LogSoftmax want = log_softmax(model, tokens);
      EXPECT_NEAR(answer.prompt_logprobs[t], want.values[size_t(prompt[t])], want.tolerance)
          << "token " << t;
      expect_top(std::span(answer.prompt_top_token_ids).subspan(t * k, k),
                 std::span(answer.prompt_top_logprobs).subspan(t * k, k), want);
      tokens.push_back(prompt[t]);
    }
    tokens = prompt;
    for (size_t t = 0; t < answer.token_ids.size(); ++t) {
      expect_top(std::span(answer.top_token_ids).subspan(t * k, k),
                 std::span(answer.top_logprobs).subspan(t * k, k), log_softmax(model, tokens));
      tokens.push_back(answer.token_ids[t]);
    }
    const Completion alone = testing::run_all(engine, {requests[r]}).front();
    testing::expect_same(alone, answer, "alone");
    EXPECT_TRUE(testing::same_bits<float>(alone.top_logprobs, answer.top_logprobs));
    if (!answer.prompt_logprobs.empty()) {
      EXPECT_TRUE(std::isnan(answer.prompt_logprobs[0]));
      EXPECT_TRUE(testing::same_bits<float>(std::span(alone.prompt_logprobs).subspan(1),
                                            std::span(answer.prompt_logprobs).subspan(1)));
    }
    Request plain = requests[r];
    if (plain.max_tokens == 0) continue;
    plain.top_logprobs = 0;
    plain.prompt_logprobs = false;
    testing::expect_same(testing::run_all(engine, {plain}).front(), answer,
                         "without log-probabilities");
  }
}

TEST_F(TinyModelSampling, LogProbabilitiesAreThoseOfTheModel) {
  std::vector<Request> requests;
  for (const auto& [field, sampling] : kOneFieldSet) {
    requests.push_back(testing::request_of(testing::random_tokens(4), 10, sampling));
  }
  const std::vector<Completion> answers = testing::run_all(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(kOneFieldSet[i].first);
    ASSERT_EQ(answers[i].logprobs.size(), 10u);
    expect_logprobs(answers[i], *requests[i].token_ids);
  }
}

}  // namespace
}  // namespace heddle
