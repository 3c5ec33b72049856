-- why: a claim is a sentence with a number that somebody can look up; one that
-- is bound to a held row, or to none, is a rumour
with

bound as (
    select
        claim_id,
        source,
        unnest(row_ids) as row_id,
    from {{ ref('claims') }}
),

known as (
    select row_id from {{ ref('gated_rows') }}
    union all
    select claim_id as row_id from {{ ref('published_claims') }}
)

select
    bound.claim_id,
    bound.row_id,
from bound
left join known on bound.row_id = known.row_id
where known.row_id is null
union all
select
    claim_id,
    null as row_id,
from {{ ref('claims') }}
where len(row_ids) = 0
