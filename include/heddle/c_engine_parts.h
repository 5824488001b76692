#ifndef HEDDLE_C_ENGINE_PARTS_H_
#define HEDDLE_C_ENGINE_PARTS_H_

/* Parts of the structs of heddle/c_engine.h, which includes this header and says how strings are
 * passed. Comments begin with the value that the init functions give, if they give one. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct heddle_string {
  const char* data;
  size_t size; /* bytes */
} heddle_string;

/* ---- Speculation ---------------------------------------------------------------------------- */

/* How an engine drafts tokens, heddle::SpeculationOptions: docs/speculation.md. */
typedef struct heddle_speculation {
  heddle_string method; /* {NULL, 0}: "off"; "ngram", "suffix", "model", "heads", "eagle3" */
  int32_t max_drafts;   /* 0: 8; of a row in a step, 1 to 15 */
  int32_t min_ngram;    /* 0: 2; of "ngram": 1 to max_ngram tokens that must have stood before */
  int32_t max_ngram;    /* 0: 4; min_ngram to 64 */
  /* of "suffix": bytes that recent answers may take, 0: 64 MiB; of "model": those of keys and
   * values of the draft model, 0: a quarter of the memory that is available */
  int64_t memory;
  heddle_string draft_model; /* {NULL, 0}; a path, of "model", "heads" and "eagle3" */
} heddle_speculation;

/* Tokens that were drafted and verified, and those of them that were accepted. */
typedef struct heddle_draft_counts {
  int64_t drafted, accepted;
} heddle_draft_counts;

#define HEDDLE_MAX_ROW_DRAFTS 15
enum {
  HEDDLE_DRAFT_NGRAM = 0,
  HEDDLE_DRAFT_SUFFIX = 1,
  HEDDLE_DRAFT_PREDICTION = 2,
  HEDDLE_DRAFT_FORMAT = 3, /* the format of the answer allowed no other token */
  HEDDLE_DRAFT_MODEL = 4,
  HEDDLE_DRAFT_HEADS = 5,
  HEDDLE_DRAFT_EAGLE3 = 6,
  HEDDLE_NUM_DRAFT_SOURCES = 7
};

/* By the place of a draft in its row, and by its source. */
typedef struct heddle_draft_stats {
  heddle_draft_counts by_place[HEDDLE_MAX_ROW_DRAFTS];
  heddle_draft_counts by_source[HEDDLE_NUM_DRAFT_SOURCES];
} heddle_draft_stats;

/* ---- Of requests ----------------------------------------------------------------------------- */

typedef struct heddle_message {
  heddle_string role, content;
} heddle_message;

typedef struct heddle_token_bias {
  int32_t token;
  float bias; /* -100 to 100 */
} heddle_token_bias;

typedef struct heddle_engine_adapter {
  heddle_string name;
  float scale; /* finite */
} heddle_engine_adapter;

typedef int32_t heddle_merge_method;
enum {
  HEDDLE_MERGE_LINEAR = 0,         /* nothing is merged: the deltas are added up */
  HEDDLE_MERGE_TIES = 1,           /* the others as PEFT's add_weighted_adapter has them */
  HEDDLE_MERGE_DARE_LINEAR = 2,    /* draws values */
  HEDDLE_MERGE_DARE_TIES = 3,      /* draws values */
  HEDDLE_MERGE_MAGNITUDE_PRUNE = 4 /* keeps the largest values, as TIES does */
};
typedef int32_t heddle_majority_sign;
enum {
  HEDDLE_SIGN_TOTAL = 0,    /* of the sum of the values */
  HEDDLE_SIGN_FREQUENCY = 1 /* that more values have */
};

/* How a list of adapters acts together: docs/adapter_merges.md. What the method has no use for
   stays as it is after _init. */
typedef struct heddle_adapter_merge {
  heddle_merge_method method;         /* HEDDLE_MERGE_LINEAR */
  double density;                     /* 0; of all other methods above 0, up to 1 */
  heddle_majority_sign majority_sign; /* HEDDLE_SIGN_TOTAL; of TIES and DARE_TIES */
  int64_t seed;                       /* 0; any; of DARE_LINEAR and DARE_TIES */
} heddle_adapter_merge;

typedef int32_t heddle_format_kind;
enum {
  HEDDLE_FORMAT_TEXT = 0,          /* anything */
  HEDDLE_FORMAT_JSON = 1,          /* any JSON object */
  HEDDLE_FORMAT_JSON_SCHEMA = 2,   /* JSON that the schema `source` describes */
  HEDDLE_FORMAT_REGEX = 3,         /* what the pattern `source` matches as a whole */
  HEDDLE_FORMAT_CHOICE = 4,        /* one of `choices` */
  HEDDLE_FORMAT_GRAMMAR = 5,       /* what rule "root" of `source`, in GBNF or EBNF, derives */
  HEDDLE_FORMAT_LARK = 6,          /* what rule "start" of `source`, in Lark, derives */
  HEDDLE_FORMAT_STRUCTURAL_TAG = 7 /* a structural tag of xgrammar, JSON */
};

/* What the text of an answer must be: docs/structured_output.md. */
typedef struct heddle_answer_format {
  heddle_format_kind kind;      /* HEDDLE_FORMAT_TEXT */
  heddle_string source;         /* {NULL, 0} */
  const heddle_string* choices; /* NULL */
  size_t num_choices;           /* 0 */
} heddle_answer_format;

/* A bound of an answer's thoughts. */
typedef struct heddle_thinking_limit {
  int64_t max_tokens;  /* -1: none; as many tokens of thoughts, then those of `end` */
  heddle_string begin; /* {NULL, 0}: it thinks from its first token on; else where it begins so */
  heddle_string end;   /* "</think>" */
} heddle_thinking_limit;

typedef int32_t heddle_values_kind;
enum {
  HEDDLE_VALUES_NONE = 0,        /* the request wants an answer */
  HEDDLE_VALUES_EMBEDDING = 1,   /* [dimensions], of the prompt's hidden states */
  HEDDLE_VALUES_CLASSES = 2,     /* [num_labels], by the score head of the adapter or the model */
  HEDDLE_VALUES_TOKEN_SCORES = 3 /* [num_token_ids] log-probabilities of what comes next */
};

/* Numbers in place of an answer, heddle::WantedValues: docs/embeddings.md. */
typedef struct heddle_wanted_values {
  heddle_values_kind kind;  /* HEDDLE_VALUES_NONE */
  heddle_string pooling;    /* {NULL, 0}: as the model's folder says; "last", "mean", "cls" */
  int32_t normalize;        /* -1: as the model's folder says; 0 or 1 */
  int64_t dimensions;       /* 0: all; the first so many */
  bool activates;           /* true; of classes: probabilities, else logits */
  const int32_t* token_ids; /* NULL; whose scores are wanted, 1 to 128 */
  size_t num_token_ids;     /* 0 */
} heddle_wanted_values;

#endif /* HEDDLE_C_ENGINE_PARTS_H_ */
