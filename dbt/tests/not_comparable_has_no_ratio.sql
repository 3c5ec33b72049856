-- why: a ratio of two things that cannot be compared is quoted all the same
select comparison_id
from {{ ref('layout_comparisons') }}
where verdict = 'not comparable' and ratio is not null
union all
select comparison_id
from {{ ref('speculation_comparisons') }}
where verdict = 'not comparable' and decode_ratio is not null
