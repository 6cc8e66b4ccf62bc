/** The data of a page, as `data.py` writes them, and what the scripts share. */

/** A prefix of a search: its place in the tree. */
type Place = number;

interface PageData {
  runs: RunData[];
  /** What each fate means, in words. */
  reasons: Record<string, string>;
  /** The numbers of the sentences, in ascending order. `packed.js` reads their data. */
  ids: number[];
}

interface RunData {
  name: string;
  predictors: string[];
  weights: (number | null)[];
  decoder: string;
  options: Record<string, string>;
  ranking: Record<string, string>;
  nbest: number;
  /** The most continuations of a prefix that are listed because of their scores. */
  children: number;
  pieces: Record<string, string>;
}

interface SentenceData {
  /** One per run; null if the trace of the run lacks the sentence. */
  searches: (SearchData | null)[];
  parting: PartingData | null;
}

interface SearchData {
  source: string[];
  text: string | null;
  limit: number | null;
  tree: TreeData;
  /** The prefixes that are shown before the reader opens others. */
  shown: Place[];
  /** By number. */
  expansions: ExpansionData[];
  recombined: [Place, Place][];
  /** Of the decoder, by place. */
  notes: Record<string, string[]>;
  /** Expansions, bound, best hypothesis. */
  bounds: [number, number | null, number | null][];
  hypotheses: HypothesisData[];
  stopped: string | null;
  counted: number;
  proven: boolean | null;
  gap: number | null;
  seconds: number | null;
  /** Why there is no output. */
  error: string | null;
  /** As in the table of sentences; empty if unknown. */
  searchError: string;
}

/** One value per prefix, in the order in which they are drawn; -1 = none. */
interface TreeData {
  parent: Place[];
  token: number[];
  total: (number | null)[];
  scores: (number | null)[][];
  fate: (string | null)[];
  expansion: number[];
  times: number[];
  rank: number[];
  below: number[];
}

interface ExpansionData {
  place: Place;
  candidates: number;
  rest: string;
  ending?: true;
  weights?: (number | null)[];
  /** Token, score, numbers of the predictors that forbid it. */
  alone?: ([number, number | null, number[]] | null)[];
  attention?: Record<string, number[]>;
  where?: Record<string, string>;
  /** Number, rows, seconds. */
  batch?: [number, number, number];
}

interface HypothesisData {
  place: Place | null;
  tokens: number[];
  text: string | null;
  score: number | null;
  rankScore: number | null;
}

interface PartingData {
  step: number | null;
  sums: Record<string, number>[];
  /** The longest prefix of the other run's output, and whether it is the whole output. */
  missed: ([Place, boolean] | null)[];
}

/** One predictor's part of the total of a token. */
interface Share {
  name: string;
  weight: number;
  score: number | null;
  weighted: number;
}
