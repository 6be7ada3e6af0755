"""The classic single-chain rule, word for word, over plain dictionaries.

Written from the rule, not from the code under ``tvm_fusion``, of which nothing is imported here:

    Topological order; from each unassigned elementwise op follow the chain while the successor is
    unique and its predecessor is unique, up to max_depth ops; a reduction may close the chain if
    its shared-memory need fits the budget; anything else cuts it. Only ops count as predecessors
    and successors (not parameters or constants); parallel edges count separately (add(x, x) has
    two predecessors); being a function output counts as a successor.

A reduction needs its whole output in shared memory. A pure reshape ("view") inside of a chain is
part of it; at the end of a chain it is left outside.

A graph is a dictionary:

    {"kinds": {op: "elementwise" | "reduction" | "view" | "other"},
     "bytes": {op: bytes of its output},
     "edges": [(producer, consumer), ...],   # one for each time the consumer reads the producer
     "outputs": [op, ...]}
"""


def single_chain(graph, max_depth, budget):
    """The groups of the classic rule.

    Parameters
    ----------
    graph : dict
        As above.
    max_depth : int
        Most ops in a chain.
    budget : int
        Bytes of shared memory that a reduction may need.

    Returns
    -------
    list of (list of op, int)
        For each group of two ops or more its ops in order and the shared memory it needs.
    """
    kinds = graph["kinds"]
    assigned = set()
    groups = []
    for start in topological_order(graph):
        if kinds[start] != "elementwise" or start in assigned:
            continue
        chain = [start]
        while len(chain) < max_depth:
            following = only_successor(graph, chain[-1])
            if following is None or number_of_predecessors(graph, following) != 1:
                break
            if kinds[following] == "reduction":
                if graph["bytes"][following] <= budget:
                    chain.append(following)
                break
            if kinds[following] not in ("elementwise", "view"):
                break
            chain.append(following)
        while kinds[chain[-1]] == "view":
            chain.pop()
        assigned.update(chain)
        if len(chain) >= 2:
            reductions = [op for op in chain if kinds[op] == "reduction"]
            groups.append((chain, sum(graph["bytes"][op] for op in reductions)))
    return groups


def topological_order(graph):
    """The ops, each after everything that it reads."""
    waiting = list(graph["kinds"])
    order = []
    while waiting:
        for op in waiting:
            if all(producer in order for producer, consumer in graph["edges"] if consumer == op):
                order.append(op)
                waiting.remove(op)
                break
        else:
            raise ValueError("the graph has a cycle")
    return order


def only_successor(graph, op):
    """The successor of an op that has one and no other, else None."""
    successors = [consumer for producer, consumer in graph["edges"] if producer == op]
    if op in graph["outputs"]:
        successors.append("the caller")
    return successors[0] if len(successors) == 1 and successors != ["the caller"] else None


def number_of_predecessors(graph, op):
    """How many times an op reads results of other ops."""
    return len([producer for producer, consumer in graph["edges"] if consumer == op])
